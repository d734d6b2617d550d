"""Every wildcard of every policy in both stacks, with its reason. A wildcard that is not in wildcards.txt fails,
and so does an unused row there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.audit.conftest import Templates, whole
from tests.stacks import synthesis

ANY = "*"
ACT_FOR_AN_ACCOUNT = ("codebuild.amazonaws.com", "eks.amazonaws.com", "vpc-flow-logs.amazonaws.com")
"""Services whose roles have an `aws:SourceAccount` condition: they act only for resources of this account."""
Row = tuple[str, str, str, str]
"""Patterns of holder, effect, action, resource."""
TABLE: list[Row] = [
    (holder, effect, action, "" if resource == "-" else resource)
    for line in Path(__file__).with_name("wildcards.txt").read_text("utf-8").splitlines()
    if line.startswith("  ")
    for holder, effect, action, resource in [line.split()]
]
NAMED = {
    ("TrnPcsStack/pcs/all-settings", "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"),
    ("TrnPclusterStack/login-and-accounting", "arn:aws:iam::111122223333:policy/parallelcluster/speech-data"),
}
"""Template and policy that its environment file has in `node_policies`."""
OF_THIS_CLUSTER, OF_THIS_REGION = "aws:ResourceTag/eks:cluster-name", "aws:RequestedRegion"
CONDITIONS = {
    **{
        ("ScalerPolicy", f"autoscaling:{action}"): OF_THIS_CLUSTER
        for action in (
            "CreateOrUpdateTags",
            "DeleteTags",
            "SetDesiredCapacity",
            "SetInstanceProtection",
            "TerminateInstanceInAutoScalingGroup",
        )
    },
    ("ScalerPolicy", "ec2:CreateTags"): "aws:RequestTag/trainium-cdk:cluster",
    ("ScalerPolicy", "ec2:CancelCapacityReservation"): "aws:ResourceTag/trainium-cdk:cluster",
    ("PluginsDetectorIdentityPolicy", "autoscaling:SetInstanceHealth"): OF_THIS_CLUSTER,
    ("NetworkEndpoint*", "*"): "aws:PrincipalAccount",
    ("ClusterKubectlHandler*", "ecr-public:GetAuthorizationToken"): OF_THIS_REGION,
    ("ImagesRoleDefaultPolicy", "ecr-public:GetAuthorizationToken"): OF_THIS_REGION,
    ("PluginsDetectorIdentityPolicy", "cloudwatch:PutMetricData"): "cloudwatch:namespace",
    ("FilesAccessLogsPolicy", "s3:PutObject"): "aws:SourceAccount",
}
"""What must equal a value in statements that would be too broad without that condition."""


@dataclass(frozen=True)
class Permission:
    """One action on one resource."""

    holder: str
    effect: str
    action: str
    resource: str
    condition: str

    @property
    def wild(self) -> bool:
        return "*" in self.action or "*" in self.resource

    def is_of(self, row: Row) -> bool:
        holder, effect, action, resource = row
        return (
            fnmatchcase(self.holder, holder)
            and self.effect == effect
            and fnmatchcase(self.action, action)
            and (self.resource == resource if resource == ANY else fnmatchcase(self.resource, resource))
        )


def permissions(template: dict[str, Any]) -> Iterator[Permission]:
    for name, resource in template["Resources"].items():
        holder = re.sub(r"[0-9A-F]{8}$", "", name)
        for statement in statements(resource.get("Properties", {})):
            assert not {"NotAction", "NotResource", "NotPrincipal"} & set(statement), name
            for action in many(statement["Action"]):
                for on in many(statement.get("Resource", "")):
                    condition = json.dumps(statement.get("Condition", {}))
                    yield Permission(holder, statement["Effect"], action, text(on), condition)


def statements(node: Any) -> Iterator[dict[str, Any]]:
    """Permissions of every policy document, wherever a resource has it; trust policies have no resource."""
    if isinstance(node, dict):
        if isinstance(node.get("Statement"), list):
            yield from node["Statement"]
        for value in node.values():
            yield from statements(value)
    elif isinstance(node, list):
        for value in node:
            yield from statements(value)


def many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    """A resource on one line: `{Files}` stands for the reference to that resource."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(text(part) for part in parts)
    if "Ref" not in value and "Fn::GetAtt" not in value:
        return json.dumps(value)
    name = value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]
    return f"{{{re.sub(r'[0-9A-F]{8}$', '', name)}}}"


@pytest.fixture(scope="module")
def wild(templates: Templates) -> set[Permission]:
    return {p for template in templates.values() for p in permissions(template) if p.wild}


def test_every_wildcard_has_its_reason(wild: set[Permission]) -> None:
    unknown = {p for p in wild if not any(p.is_of(row) for row in TABLE)}
    assert unknown == set()


@whole
def test_every_row_is_used(wild: set[Permission]) -> None:
    assert [row for row in TABLE if not any(p.is_of(row) for p in wild)] == []


@pytest.mark.parametrize("key", CONDITIONS)
@whole
def test_wide_permissions_carry_their_condition(key: tuple[str, str], wild: set[Permission]) -> None:
    found = [p for p in wild if fnmatchcase(p.holder, key[0]) and p.action == key[1] and p.effect == "Allow"]
    assert found
    assert all(p.condition.startswith(f'{{"StringEquals": {{"{CONDITIONS[key]}"') for p in found)


def test_trust_policies_name_their_principals(templates: Templates) -> None:
    """A service; the account itself for the role that reaches the Kubernetes API; the roles of a cluster's nodes for that of jobs. Never `*`."""
    for subject, template in templates.items():
        for name, resource in template["Resources"].items():
            if resource["Type"] != "AWS::IAM::Role":
                continue
            for statement in resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]:
                principal = statement["Principal"]
                assert set(principal) <= {"Service", "AWS"}, (subject, name)
                if "AWS" in principal and name.startswith("ClusterJobRole"):
                    nodes = ("ClusterNodeRole", "ClusterLoginRole")
                    of_node = any(node in text(principal["AWS"]) for node in nodes)
                    below = text(statement.get("Condition", {}).get("ArnLike", {}).get("aws:PrincipalArn", ""))
                    assert of_node or below.endswith(":role/*/" + below.split("/")[-2] + "/*"), (subject, name)
                elif "AWS" in principal:
                    assert name.startswith("ClusterAccessRole"), (subject, name)
                    assert text(principal["AWS"]).endswith(":root")
                if principal.get("Service") == "pods.eks.amazonaws.com":
                    assert "aws:SourceArn" in json.dumps(statement["Condition"]), (subject, name)
                if principal.get("Service") in ACT_FOR_AN_ACCOUNT:
                    assert set(statement["Condition"]["StringEquals"]) == {"aws:SourceAccount"}, (subject, name)


def test_the_access_role_is_for_the_users_that_are_named() -> None:
    roles = {
        environment: resource["Properties"]["AssumeRolePolicyDocument"]["Statement"][0].get("Condition")
        for environment in ("default", "eks/all-settings")
        for name, resource in synthesis.EKS.document(environment)["Resources"].items()
        if name.startswith("ClusterAccessRole")
    }
    users = ["arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/*/AWSReservedSSO_Speech_*"]
    assert roles["eks/all-settings"] == {"ArnLike": {"aws:PrincipalArn": users}}
    assert roles["default"] is None


def test_managed_policies_are_the_few_that_services_need(templates: Templates) -> None:
    """Beside those that an environment file names."""
    found = {
        text(arn).rpartition("/")[2]
        for name, template in templates.items()
        for resource in template["Resources"].values()
        for arn in resource.get("Properties", {}).get("ManagedPolicyArns", [])
        if "policy/" in text(arn) and (name, text(arn)) not in NAMED
    }
    assert found == {
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEKSClusterPolicy",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKS_CNI_Policy",
    }


def test_the_test_detects_wildcards() -> None:
    policy = {
        "Properties": {
            "Policies": [
                {
                    "PolicyDocument": {
                        "Statement": [{"Effect": "Allow", "Action": ["s3:Get*", "s3:Put"], "Resource": "a"}]
                    }
                },
                {"PolicyDocument": {"Statement": [{"Effect": "Allow", "Action": "ec2:Run", "Resource": ["*", "b"]}]}},
            ]
        }
    }
    found = {(p.action, p.resource) for p in permissions({"Resources": {"RoleABCDEF01": policy}}) if p.wild}
    assert found == {("s3:Get*", "a"), ("ec2:Run", "*")}
