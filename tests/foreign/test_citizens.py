"""All constructs as parts of another app: its tags reach what they start, and a move of their stack replaces nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import jsii
import pytest
from aws_cdk import Stack, TagManager
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template
from constructs import Construct

import trainium_cdk as trn
from sandbox import LocalAws
from tests.cdk import app
from tests.support import ROOT
from trainium_cdk import stacks
from trainium_cdk.description.settings import DataRepository, Fsx, Peering

ENV = cdk.Environment(account="111122223333", region="us-west-2")
ZONES = ["us-west-2a", "us-west-2b"]


def every_construct(stack: Stack, *, vpc_id: str = "Vpc") -> None:
    """All of them, on a network and beside file systems and a cluster of another app."""
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        vpc_id,
        vpc_id="vpc-0123456789abcdef0",
        vpc_cidr_block="10.0.0.0/16",
        availability_zones=ZONES,
        private_subnet_ids=["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0", "rtb-0123456789abcdef1"],
        public_subnet_ids=["subnet-0123456789abcdef2", "subnet-0123456789abcdef3"],
        public_subnet_route_table_ids=["rtb-0123456789abcdef2", "rtb-0123456789abcdef3"],
    )
    bucket, repository = s3.Bucket(stack, "Bucket"), ecr.Repository(stack, "Repository")
    given = efs.FileSystem.from_file_system_attributes(
        stack, "Given", file_system_id="fs-0123456789abcdef0", security_group=group(stack, "GivenGroup", 0)
    )
    trn.TrnNetwork(stack, "Network")
    trn.TrnPeering(stack, "Peering", vpc=vpc, peer=Peering(vpc_id="vpc-0123456789abcdef1", cidr=("10.1.0.0/16",)))
    trn.TrnBucket(stack, "Files")
    trn.TrnRegistry(stack, "Registry")
    trn.TrnBootstrap(stack, "Bootstrap", bucket=bucket)
    trn.TrnEfaSecurityGroup(stack, "Efa", vpc=vpc)
    storage = trn.TrnStorage(
        stack,
        "Storage",
        vpc=vpc,
        lustre=Fsx(deployment="PERSISTENT_2", backup_days=7),
    )
    linked = Fsx(s3_links=(DataRepository(uri=bucket.s3_url_for_object()),))
    trn.TrnStorage(stack, "Linked", vpc=vpc, efs=None, lustre=linked)
    slurm = trn.TrnPcluster(stack, "Pcluster", vpc=vpc, storage=given)
    trn.TrnObservability(stack, "Seen", cluster=slurm)
    trn.TrnJobNotices(
        stack, "Notices", log_group=logs.LogGroup(stack, "Lines"), topic=sns.Topic(stack, "Topic", enforce_ssl=True)
    )
    trn.TrnPclusterProvider(stack, "Provider")
    pcs = trn.TrnPcsCluster(stack, "Pcs", vpc=vpc, storage=storage)
    client = ec2.SecurityGroup(stack, "Client", vpc=vpc, description="Of the app")
    storage.connections.allow_default_port_from(client)

    ours = trn.TrnEksCluster(stack, "Eks", vpc=vpc)
    theirs = eks.Cluster.from_cluster_attributes(
        stack,
        "Theirs",
        cluster_name="theirs",
        vpc=vpc,
        cluster_security_group_id="sg-0123456789abcdef1",
        security_group_ids=["sg-0123456789abcdef2"],
    )
    trn.TrnSystemNodes(stack, "System", cluster=theirs, storage=given)
    trn.TrnNodeRole(stack, "NodeRole", storage=storage)
    trn.TrnNodeGroup(stack, "TheirNodes", cluster=theirs, storage=given)
    their = trn.TrnNodeGroup.from_nodegroup_attributes(
        cluster=theirs, nodegroup_name="theirs", nodes=trn.settings.NodeGroup(name="theirs")
    )
    training = trn.TrnEks(stack, "Training", cluster=ours, storage=storage, bucket=bucket, outputs=False)
    for jobs in (slurm, pcs, training.plugins):
        jobs.grant_addresses("s3://mine/runs", f"s3://{bucket.bucket_name}/graphs/")
    training.grant_submit(iam.Role(stack, "Person", assumed_by=iam.AccountRootPrincipal()))
    training.grant_submit(iam.Role(stack, "Member", assumed_by=iam.AccountRootPrincipal()), team="speech")
    trn.TrnScaler(stack, "TheirScaler", cluster=theirs, node_groups=[their], plugins=training.plugins)
    images = trn.TrnImageBuilder(stack, "Images", bucket=bucket, repository=repository)
    host = trn.TrnBastionHost(stack, "Host", vpc=vpc)
    groups = training.node_groups
    trn.TrnOutputs(
        stack, "Outputs", cluster=ours, bucket=bucket, node_groups=groups, image_builder=images, bastion_host=host
    )
    trn.encrypt(stack, trn.TrnKey(stack, "Key", description="Data").key)


def group(stack: Stack, id: str, number: int) -> ec2.ISecurityGroup:
    return ec2.SecurityGroup.from_security_group_id(stack, id, f"sg-{number:017x}", allow_all_outbound=False)


def in_app(**context: object) -> Stack:
    return Stack(app(context), "Data", stack_name="Data", env=ENV)


@cache
def template() -> Template:
    stack = in_app()
    every_construct(stack)
    return Template.from_stack(stack)


def test_every_construct_of_the_package_is_here() -> None:
    stack = in_app()
    every_construct(stack)
    made = {type(node).__name__ for node in stack.node.find_all()}
    values = {"FileSystemMount"}
    functions = {"encrypt", "encrypt_operations"}
    assert set(trn.__all__) - values - functions <= made


def lists_of_tags(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each list of tags in a template: where it is, and the names in it."""
    if isinstance(node, list):
        for i, each in enumerate(node):
            yield from lists_of_tags(each, f"{path}.{i}")
    elif isinstance(node, dict):
        for key, each in node.items():
            if key == "Tags":
                yield path, {t["Key"] for t in each} if isinstance(each, list) else set(each)
            elif key != "Outputs":
                yield from lists_of_tags(each, f"{path}.{key}")


@pytest.mark.parametrize("explicit", [False, True], ids=["no flags", "explicit stack tags"])
def test_tags_of_the_app_and_of_its_stack_are_everywhere(explicit: bool) -> None:
    found = app({"@aws-cdk/core:explicitStackTags": explicit})
    stack = Stack(found, "Data", env=ENV, tags={"Given": "to the stack"})
    every_construct(stack)
    cdk.Tags.of(found).add("CostCenter", "42")
    text = Template.from_stack(stack).to_json()
    without = [path for path, names in lists_of_tags(text["Resources"]) if "CostCenter" not in names]
    assert without == []
    takers = [
        node for node in stack.node.find_all() if isinstance(node, cdk.CfnResource) and TagManager.is_taggable(node)
    ]
    for taker in takers:
        properties = text["Resources"][stack.resolve(taker.logical_id)].get("Properties", {})
        if (
            taker.cfn_resource_type == "AWS::EKS::Nodegroup"
        ):  # EKS does not take tags and a launch template in one update
            assert "Tags" not in properties
            continue
        assert '"CostCenter"' in str(properties).replace("'", '"'), taker.node.path
    templates = {
        name: each["Properties"]["LaunchTemplateData"].get("TagSpecifications", [])
        + each["Properties"].get("TagSpecifications", [])
        for name, each in text["Resources"].items()
        if each["Type"] == "AWS::EC2::LaunchTemplate"
    }
    assert len(templates) >= 7
    for name, specifications in templates.items():
        kinds = {each["ResourceType"] for each in specifications}
        host = name.startswith("Host")  # its instance is a resource of its own
        assert kinds == {"launch-template"} | (set() if host else {"instance", "volume"}), name
        for each in specifications:
            if each["ResourceType"] != "launch-template":  # CloudFormation gives it the stack's
                assert {"Key": "Given", "Value": "to the stack"} in each["Tags"], name
    [host] = [each["Properties"] for each in text["Resources"].values() if each["Type"] == "AWS::EC2::Instance"]
    assert host["PropagateTagsToVolumeOnCreation"] is True


def test_a_move_of_the_stack_or_another_id_of_its_network_changes_no_logical_id() -> None:
    def moved(scope: Construct, id: str = "Data", **names: str) -> dict[str, Any]:
        stack = Stack(scope, id, stack_name="Data", env=ENV)
        every_construct(stack, **names)
        found: dict[str, Any] = Template.from_stack(stack).to_json()
        return found

    expected = template().to_json()
    for found in (moved(cdk.Stage(app(), "Prod")), moved(app(), "Other"), moved(app(), vpc_id="Shared")):
        assert sorted(set(found["Resources"]) ^ set(expected["Resources"])) == []
        assert found == expected


@pytest.mark.parametrize("name", ["TrnEksStack", "TrnPcsStack", "TrnPclusterStack"])
def test_a_whole_stack_moves_too(name: str) -> None:
    made = getattr(stacks, name)
    first, second = (
        Template.from_stack(made(scope, "Data", stack_name="Data", env=ENV)).to_json()
        for scope in (app(), cdk.Stage(app(), "Prod"))
    )
    assert first == second


@pytest.mark.sweep
def test_a_stack_moves_below_a_stage_in_aws(local_aws: LocalAws, tmp_path: Path) -> None:
    before = local_aws.leftovers()
    script = ("--app", f"{sys.executable} {ROOT / 'tests/apps/moved.py'}", "-o", str(tmp_path / "cdk.out"))
    deploy = ("deploy", *script, "--require-approval", "never")
    local_aws.cdk(*deploy, cwd=tmp_path)
    made = physical_ids(local_aws)
    local_aws.cdk(*deploy, "-c", "stage=1", "Prod/*", cwd=tmp_path)
    assert physical_ids(local_aws) == made
    local_aws.cdk("destroy", *script, "-c", "stage=1", "Prod/*", "--force", cwd=tmp_path)
    assert local_aws.leftovers() == before


def physical_ids(aws: LocalAws) -> dict[str, str]:
    found = aws.client("cloudformation").describe_stack_resources(StackName="Moved")["StackResources"]
    return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}


@jsii.implements(cdk.IPropertyInjector)
class Injector:
    """What a company sets on every function."""

    @property
    def construct_unique_id(self) -> str:
        return functions.Function.PROPERTY_INJECTION_ID

    def inject(self, original_props: Mapping[str, Any], *, id: str, scope: Construct) -> dict[str, Any]:
        return {**original_props, "memorySize": 1234}


@pytest.mark.parametrize("near", [False, True], ids=["of the app", "of a scope of its own"])
def test_property_injectors_of_the_app_reach_every_function(near: bool) -> None:
    found = app()
    stack = Stack(found, "Data", env=ENV)
    cdk.PropertyInjectors.of(stack if near else found).add(Injector())
    every_construct(stack)
    made = Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
    assert len(made) >= 6
    assert [f["Properties"].get("Description") for f in made if f["Properties"].get("MemorySize") != 1234] == []
    logs = [f["Properties"]["LoggingConfig"]["LogGroup"] for f in made if "Kubectl" in str(f["Properties"]["Role"])]
    assert len(logs) == 2
    assert all("TrnDeployment" in str(log) for log in logs)
