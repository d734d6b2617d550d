"""The caller's identity, existing resources, and what AWS still supports."""

from __future__ import annotations

import datetime as dt
from typing import Any

import aws_cdk as cdk
import pytest

from tests.cdk import app
from tests.checks.live.cases import Case, verify
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.live.account import OLDEST_BOOTSTRAP
from trainium_cdk.description.checks.live.keys import KmsKey

IMAGE = "pcluster: {custom_ami: ami-0123456789abcdef0}"
ADDRESS = "pcluster: {head: {subnet: public, elastic_ip: 203.0.113.10}}"
KEY = "pcluster: {head: {subnet: public, ssh: {from_cidrs: [203.0.113.0/24], key_name: mine}}}"
PCLUSTER = "ParallelCluster 3.16.1 on ubuntu2404"
EKS = "eks: {version: '1.34'}"
ADDONS = [
    "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent",
]  # fmt: skip


PC = Catalog.load().parallelcluster.default
OFFICIAL = f"aws-parallelcluster-{PC}-ubuntu-2204-lts-hvm-x86_64-202602170000"


def image(**other: Any) -> dict[str, Any]:
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 45}}
    own = {"ImageId": "ami-0123456789abcdef0", "State": "available", "Architecture": "x86_64", "Name": OFFICIAL}
    return {**own, "RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [disk], **other}


def version(status: str, standard: str, extended: str = "2027-12-02") -> dict[str, Any]:
    ends = (dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC) for day in (standard, extended))
    pair = dict(zip(("endOfStandardSupportDate", "endOfExtendedSupportDate"), ends, strict=True))
    return {"versionStatus": status, **pair}


def identity(account: str) -> dict[str, str]:
    return {"Account": account, "Arn": f"arn:aws:iam::{account}:user/me"}


def resource(name: str, kind: str = "Custom::PclusterCluster", status: str = "UPDATE_FAILED") -> dict[str, str]:
    return {"LogicalResourceId": name, "ResourceType": kind, "ResourceStatus": status}


HEAD_IMAGE = "pcluster: {os: ubuntu2204, head: {custom_ami: ami-0123456789abcdef0}}"


def tags(version: str, system: str) -> list[dict[str, str]]:
    return [{"Key": "parallelcluster:version", "Value": version}, {"Key": "parallelcluster:os", "Value": system}]


SECRET = ("pcluster", "accounting", "password_secret")
DECRYPT = {
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
    "Action": "kms:Decrypt",
    "Resource": "*",
}
ACCOUNTING = (
    "pcluster: {accounting: {uri: 'db:3306', user: slurm, "
    "password_secret: 'arn:aws:secretsmanager:us-east-1:111122223333:secret:d-AbCdEf'}}"
)
STANDARD = {"1.36": version("STANDARD_SUPPORT", "2027-08-02")}
SSO = "AWSReservedSSO_Admin_0123456789abcdef"
SSO_ARN = f"arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/eu-west-1/{SSO}"
ENTRY, ENTRY_AT = "eks: {access: [{principal: 'arn:aws:iam::111122223333:role/%s'}]}", ("eks", "access", 0, "principal")
SESSION = f"eks: {{access: [{{principal: 'arn:aws:sts::111122223333:assumed-role/{SSO}/alice'}}]}}"
USER, USER_AT = "eks: {users: ['arn:aws:iam::111122223333:user/ada']}", ("eks", "users", 0)
TABLE = [
    Case("roles-with-access", ENTRY % "Lab", {ENTRY_AT: "arn:aws:iam::111122223333:role/Lab"}, [("ok", "role Lab", "exists")], "eks"),
    Case("roles-with-access", ENTRY % "Lab", {ENTRY_AT: "arn:aws:iam::111122223333:role/team/Lab"}, [("error", "Fix: write arn:aws:iam::111122223333:role/team/Lab [environment.yaml:1]")], "eks"),
    Case("roles-with-access", ENTRY % "Lab", {ENTRY_AT: None}, [("error", "there is none of this name in this account: EKS refuses its access entry")], "eks"),
    Case("roles-with-access", ENTRY % "AWSServiceRoleForBatch", {ENTRY_AT: "arn:aws:iam::111122223333:role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"},
         [("error", "Fix: give one that is not a service's")], "eks"),
    Case("roles-with-access", SESSION, {ENTRY_AT: SSO_ARN}, [("error", f"Fix: write {SSO_ARN}")], "eks"),
    Case("users-with-access", USER, {USER_AT: "arn:aws:iam::111122223333:user/ada"}, [("ok", "user ada")], "eks"),
    Case("users-with-access", USER, {USER_AT: None}, [("error", "it matches no one")], "eks"),
    Case("credentials", "", identity("111122223333"), [("ok", "user/me", "account 111122223333, region us-east-1")]),
    Case("credentials", "account: '444455556666'", identity("111122223333"),
         [("error", "the credentials (arn:aws:iam::111122223333:user/me) are not for the environment's account "
         "444455556666", "[environment.yaml:1]")]),
    Case("bootstrap", "", "21", [("ok", "version 21")]),
    Case("bootstrap", "", None, [("warning", "this account and region are not bootstrapped for the CDK", "Fix: `trn launch` does it; for `cdk deploy`: cdk bootstrap aws://111122223333/us-east-1")]),
    Case("bootstrap", "", "5", [("error", "version 5", "need version 6")]),
    Case("bootstrap", "", "?", [("error", "version ?")]),
    Case("stack", "", (None, None), [("ok", "it will be created")]),
    Case("stack", "", ({"StackStatus": "UPDATE_COMPLETE"}, None), [("ok", "UPDATE_COMPLETE", "not counted again")]),
    Case("stack", "", ({"StackStatus": "ROLLBACK_COMPLETE"}, None), [("error", "trn destroy TrnPclusterStack")]),
    Case("stack", "", ({"StackStatus": "UPDATE_ROLLBACK_FAILED", "Resources": [resource("Files", "AWS::EFS::FileSystem")]}, None),
         [("error", "repair the stack first: aws cloudformation continue-update-rollback --stack-name TrnPclusterStack --region us-east-1 [")]),
    Case("stack", "", ({"StackStatus": "UPDATE_ROLLBACK_FAILED", "Resources": [resource("Slurm"), resource("Files", "AWS::EFS::FileSystem")]}, None),
         [("error", "continue-update-rollback --stack-name TrnPclusterStack --region us-east-1 --resources-to-skip Slurm [")]),
    Case("stack", "", ({"StackStatus": "DELETE_FAILED"}, None), [("error", "trn destroy")]),
    Case("stack", "name: mine", ({"StackStatus": "CREATE_IN_PROGRESS"}, None), [("error", "stack TrnPclusterStack-mine", "wait")]),
    Case("stack", "", (None, {"StackStatus": "CREATE_COMPLETE"}), [("error", "stack trn-slurm", "pcluster.cluster_name"), ("ok",)]),
    Case("stack", "pcluster: {cluster_name: taken}", ({"StackStatus": "UPDATE_COMPLETE"}, {"StackStatus": "CREATE_COMPLETE"}),
         [("error", "stack taken", "ParallelCluster creates a stack with the cluster's name, and a stack with this name already exists"), ("ok", "it exists and will be updated")]),
    Case("images", IMAGE, {"ami-0123456789abcdef0": image()}, [("ok",)] * 3),
    Case("images", IMAGE, {"ami-0123456789abcdef0": None}, [("error", "it does not exist in us-east-1, or this account may not use it", "[environment.yaml:1]")] * 3),
    Case("images", HEAD_IMAGE, {"ami-0123456789abcdef0": image(Name="mine")},
         [("warning", "no tag parallelcluster:version", f"pcluster build-image of ParallelCluster {PC}")]),
    Case("images", HEAD_IMAGE, {"ami-0123456789abcdef0": image(Name="mine", Tags=tags(PC, "ubuntu2204"))}, [("ok",)]),
    Case("images", HEAD_IMAGE, {"ami-0123456789abcdef0": image(Name="mine", Tags=tags("3.14.0", "ubuntu2204"))},
         [("error", "3.14.0", f"nodes of {PC} refuse to start from it")]),
    Case("images", HEAD_IMAGE, {"ami-0123456789abcdef0": image(Name="aws-parallelcluster-3.15.0-ubuntu-2204-lts-hvm-x86_64-1")},
         [("error", "3.15.0", f"nodes of {PC} refuse to start from it")]),
    Case("images", HEAD_IMAGE, {"ami-0123456789abcdef0": image(Tags=tags(PC, "alinux2023"))},
         [("error", "built for alinux2023", "write os: alinux2023")]),
    Case("images", "pcluster: {head: {custom_ami: ami-0123456789abcdef0}}", {"ami-0123456789abcdef0": image(State="pending")},
         [("error", "pending")]),
    Case("images", "eks: {node_groups: [{custom_ami: ami-0123456789abcdef0}]}",
         {"ami-0123456789abcdef0": image(Architecture="arm64")}, [("error", "arm64", "x86_64")], "eks"),
    Case("images", "eks: {node_groups: [{custom_ami: ami-0123456789abcdef0, root_volume_gib: 40}]}",
         {"ami-0123456789abcdef0": image()}, [("error", "45 GiB", "root_volume_gib: 45 or more")], "eks"),
    Case("images", "eks: {node_groups: [{custom_ami: ami-0123456789abcdef0}]}",
         {"ami-0123456789abcdef0": image(DeprecationTime="2026-01-01T00:00:00.000Z")}, [("warning", "deprecated")], "eks"),
    Case("parallelcluster", "", [image(CreationDate="2026-02-17")], [("ok", PCLUSTER)]),
    Case("parallelcluster", "pcluster: {version: 3.15.0}", [], [("error", "3.15.0", "write pcluster.version: 3.16.1")]),
    Case("parallelcluster", "", [image(CreationDate="2026-01-01", DeprecationTime="2026-05-01T00:00:00Z"),
                                 image(CreationDate="2025-01-01")], [("warning", "deprecated")]),
    Case("kubernetes", "", STANDARD, [("ok", "until 2027-08-02")], "eks"),
    Case("kubernetes", EKS, {**STANDARD, "1.34": version("EXTENDED_SUPPORT", "2026-10-02")},
         [("warning", "costs more, and support ends 2027-12-02", "one of 1.36")], "eks"),
    Case("kubernetes", EKS, {**STANDARD, "1.34": version("STANDARD_SUPPORT", "2026-12-02")},
         [("warning", "it ends 2026-12-02")], "eks"),
    Case("kubernetes", EKS, {**STANDARD, "1.34": version("UNSUPPORTED", "2025-12-02")}, [("error", "unsupported")], "eks"),
    Case("kubernetes", EKS, STANDARD, [("error", "EKS does not create clusters of this version in us-east-1")], "eks"),
    Case("addons", "", {}, [("error", f"add-on {a}", "another Kubernetes version") for a in ADDONS], "eks"),
    Case("node-image", "", "ami-1", [("ok", "published for Kubernetes 1.36")], "eks"),
    Case("node-image", EKS, None, [("error", "no Neuron image for Kubernetes 1.34", "write eks.version: 1.36")], "eks"),
    Case("pcs-image", "", None, [("error", "AWS publishes no PCS-ready image of ubuntu2404 in us-east-1", "give pcs.custom_ami")], "pcs"),
    Case("pcs-clusters", "", ["trn-pcs", "a", "b", "c", "d"],
         [("error", "PCS cluster trn-pcs = exists", "write another pcs.cluster_name"), ("warning", "5 other clusters in us-east-1, and this is the default limit")],
         "pcs"),
    Case("reserving", "", {"EvalDecision": "allowed"}, [("ok", "charged like them; it ends automatically after 10 minutes")], "eks"),
    Case("reserving", "", {"OrganizationsDecisionDetail": {"AllowedByOrganizations": False}},
         [("error", "no node would start", "eks.scaling.reserve: false")], "eks"),
    Case("reserving", "", None, [("info", "bootstrap")], "eks"),
    Case("key-pair", KEY, "ed25519", [("ok", "key pair mine")]),
    Case("key-pair", KEY, "rsa", [("error", "ubuntu2404 does not support rsa keys", "[environment.yaml:1]")]),
    Case("key-pair", KEY.replace("{head", "{os: alinux2023, head"), "rsa", [("ok",)]),
    Case("key-pair", KEY, None, [("error", "create-key-pair --key-name mine --key-type ed25519")]),
    Case("head-address", ADDRESS, {"AllocationId": "eipalloc-1"}, [("ok", "address 203.0.113.10", "it is free")]),
    Case("head-address", ADDRESS, {"AllocationId": "eipalloc-1", "AssociationId": "eipassoc-1", "InstanceId": "i-1"},
         [("warning", "i-1", "ParallelCluster would take it from there")]),
    Case("head-address", ADDRESS, None, [("error", "it is not an Elastic IP address of this account in us-east-1")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, None)}, [("ok", "secret d-AbCdEf", "its value is not read")]),
    Case("secrets", ACCOUNTING, {SECRET: (None, None)}, [("error", "does not exist in us-east-1", "[environment.yaml:1]")]),
    Case("secrets", ACCOUNTING, {SECRET: ({"DeletedDate": 1}, None)}, [("error", "scheduled for deletion", "restore-secret --secret-id arn:aws")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, KmsKey(None))}, [("error", "it is the key of this secret, and does not exist in us-east-1", "use another")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, KmsKey({"KeyId": "k", "KeyState": "Disabled"}))}, [("error", "= Disabled", "enable-key --key-id k")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, KmsKey({"KeyId": "k", "KeyState": "Enabled"}))},
         [("info", "= encrypted with k", "not checked: whether the key's policy lets the head node use it", "kms:Decrypt")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, KmsKey({"KeyId": "k"}, (DECRYPT,)))}, [("ok", "the head node may use this key")]),
    Case("secrets", ACCOUNTING, {SECRET: ({}, KmsKey({"KeyId": "k"}, ({**DECRYPT, "Action": "kms:Encrypt"},)))},
         [("error", "let the key's policy allow arn:aws:iam::111122223333:root kms:Decrypt through Secrets Manager")]),
    Case("service-roles", "", {"AWSServiceRoleForAmazonElasticFileSystem": False}, [("info", "at first use")]),
    Case("service-roles", "pcluster: {queues: [{capacity_type: spot}]}",
         {"AWSServiceRoleForEC2Spot": False, "AWSServiceRoleForAmazonElasticFileSystem": True},
         [("error", "it is not created automatically, and no instance can start without it", "--aws-service-name spot.amazonaws.com"), ("ok",)]),
    Case("service-roles", "encryption: customer-key",
         {"AWSServiceRoleForAmazonEKS": True, "AWSServiceRoleForAmazonEKSNodegroup": False, "AWSServiceRoleForAutoScaling": False,
          "AWSServiceRoleForAmazonElasticFileSystem": True},
         [("ok",), ("info",), ("error", "the policy of the stack's key names this role (encryption: customer-key), and KMS rejects a policy "
         "with a", "--aws-service-name autoscaling.amazonaws.com"), ("ok",)],
         "eks"),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=lambda c: f"{c.check}: {c.expected[0]}")
def test_responses_are_evaluated(case: Case) -> None:
    verify(case)


def test_the_oldest_bootstrap_is_the_one_that_templates_require() -> None:
    made = app()
    cdk.CfnResource(cdk.Stack(made, "S"), "R", type="AWS::SNS::Topic")
    template = made.synth().get_stack_by_name("S").template
    refused = template["Rules"]["CheckBootstrapVersion"]["Assertions"][0]["Assert"]["Fn::Not"][0]["Fn::Contains"][0]
    assert max(map(int, refused)) + 1 == OLDEST_BOOTSTRAP
