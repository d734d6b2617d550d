"""`TrnNetwork` and `TrnStorage` together with the CDK's own constructs."""

from __future__ import annotations

import pytest
from aws_cdk import App, Environment, RemovalPolicy, Size, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from tests.cdk import app, findings, needs, only, properties, resources
from tests.foreign.foreign import template, vpc
from trainium_cdk import TrnNetwork, TrnRegistry, TrnStorage, settings


@pytest.mark.parametrize(
    ("region", "zones"),
    [("us-west-2", ["usw2-az4", "usw2-az1"]), ("eu-west-1", None), ("eusc-de-east-1", None), ("", None)],
)
def test_a_network_needs_no_argument(region: str, zones: list[str] | None) -> None:
    found = template(lambda s: TrnNetwork(s, "Net"), region)
    subnets = properties(found, "EC2::Subnet")
    if zones:
        assert [s["AvailabilityZoneId"] for s in subnets if s["CidrBlock"].endswith("/20")] == zones
    else:
        names = [s["AvailabilityZone"]["Fn::Select"][0] for s in subnets if s["CidrBlock"].endswith("/20")]
        assert names == [0, 1]
    assert len(resources(found, "EC2::NatGateway")) == 1
    assert findings(found) == []


def function(scope: Stack, within: ec2.IVpc) -> None:
    functions.Function(
        scope,
        "Function",
        code=functions.Code.from_inline("def handler(event, context): pass"),
        handler="index.handler",
        runtime=functions.Runtime.PYTHON_3_14,
        vpc=within,
    )


def test_resources_in_the_network_wait_for_its_routes() -> None:
    def build(scope: Stack) -> None:
        function(
            scope, TrnNetwork(scope, "Net", network=settings.Network(nat="per-zone", interface_endpoints=("ssm",))).vpc
        )

    found = template(build)
    before = needs(found, next(k for k in resources(found, "Lambda::Function") if k.startswith("Function")))
    for kind in ("EC2::Route", "EC2::NatGateway", "EC2::SubnetRouteTableAssociation", "EC2::VPCEndpoint"):
        assert set(resources(found, kind)) <= before, kind


def test_storage_in_an_imported_vpc() -> None:
    def build(scope: Stack) -> None:
        storage = TrnStorage(scope, "S", vpc=ec2.Vpc(scope, "Vpc", max_azs=2))
        group = ec2.SecurityGroup(scope, "Group", vpc=storage_vpc(scope), allow_all_outbound=False)
        storage.connections.allow_default_port_from(group)
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        grant = storage.grant_read_write(role)
        assert isinstance(grant, iam.Grant)
        assert grant.success

    def storage_vpc(scope: Stack) -> ec2.IVpc:
        found = scope.node.find_child("Vpc")
        assert isinstance(found, ec2.Vpc)
        return found

    found = template(build)
    assert len(properties(found, "EFS::MountTarget")) == 2
    [server] = (k for k in resources(found, "EC2::SecurityGroup") if "EfsGroup" in k)
    into = [r for r in properties(found, "EC2::SecurityGroupIngress") if r["GroupId"] == {"Fn::GetAtt": [server, "GroupId"]}]  # fmt: skip
    assert {str(r["SourceSecurityGroupId"]) for r in into} >= {str({"Fn::GetAtt": [k, "GroupId"]}) for k in resources(found, "EC2::SecurityGroup") if k.startswith("Group")}  # fmt: skip
    assert {r["FromPort"] for r in into} == {2049}
    [statement] = only(found, "IAM::Policy")["PolicyDocument"]["Statement"]
    assert statement["Action"] == ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
    assert findings(found) == []


def test_file_systems_of_the_cdk_are_taken_as_they_are() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        theirs = efs.FileSystem(scope, "Theirs", vpc=within)
        fast = fsx.LustreFileSystem(
            scope, "Fast", vpc=within, vpc_subnet=within.private_subnets[0], storage_capacity_gib=1200,
            lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
        )  # fmt: skip
        storage = TrnStorage(scope, "S", vpc=within, efs=theirs, lustre=fast)
        storage.grant_root_access(iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
        assert [(m.kind, m.owned) for m in storage.file_systems] == [("efs", False), ("fsx", False)]
        assert storage.has_lustre
        assert storage.file_systems[1].mount_name == fast.mount_name

    found = template(build)
    assert len(resources(found, "EFS::FileSystem")) == len(resources(found, "FSx::FileSystem")) == 1
    clients = next(k for k in resources(found, "EC2::SecurityGroup") if "Clients" in k)
    ports = {r["FromPort"] for r in properties(found, "EC2::SecurityGroupIngress") if clients in str(r.get("SourceSecurityGroupId"))}  # fmt: skip
    assert ports == {2049, 988, 1018}
    assert findings(found) == []


def test_lustre_linked_to_a_bucket_of_the_app() -> None:
    def build(scope: Stack) -> None:
        link = settings.DataRepository(uri=s3.Bucket(scope, "Corpus").s3_url_for_object("train/"), auto_export=True)
        deployment, capacity = fsx.LustreDeploymentType.PERSISTENT_2, Size.tebibytes(2.34375)
        lustre = settings.Fsx.model_validate({"deployment": deployment, "capacity_gib": capacity, "s3_links": [link]})
        TrnStorage(scope, "S", vpc=vpc(scope), efs=None, lustre=lustre, removal_policy=RemovalPolicy.RETAIN)

    found = template(build)
    assert only(found, "FSx::DataRepositoryAssociation")["DataRepositoryPath"] == {
        "Fn::Join": ["", ["s3://", {"Ref": next(iter(resources(found, "S3::Bucket")))}, "/train/"]]
    }
    assert only(found, "FSx::FileSystem")["StorageCapacity"] == 2400
    kept = {r["Type"] for r in found.to_json()["Resources"].values() if r.get("DeletionPolicy") == "Retain"}
    assert kept == {
        "AWS::FSx::FileSystem",
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::Subnet",
        "AWS::EC2::VPC",
        "AWS::S3::Bucket",
    }
    assert findings(found) == []


def test_split_over_stacks() -> None:
    """Network, storage and use in stacks of their own: references go from one to the next, and never back."""
    found: App = app()
    env = Environment(account="111122223333", region="us-west-2")
    network_stack, storage_stack, use = (Stack(found, name, env=env) for name in ("Network", "Storage", "Use"))
    network = TrnNetwork(network_stack, "Net")
    storage = TrnStorage(storage_stack, "S", vpc=network.vpc)
    role = iam.Role(use, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    storage.grant_read_write(role)
    function(use, network.vpc)
    found.synth()
    assert [d.stack_name for d in use.dependencies] == ["Network", "Storage"]
    assert [d.stack_name for d in storage_stack.dependencies] == ["Network"]
    assert Template.from_stack(network_stack).find_resources("AWS::EFS::FileSystem") == {}


def test_grants_are_grants() -> None:
    def build(scope: Stack) -> None:
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        registry = TrnRegistry(scope, "Registry")
        assert registry.grant_pull(role).success
        assert registry.grant_pull_push(role).success
        lustre = TrnStorage(scope, "S", vpc=vpc(scope), efs=None, lustre=settings.Fsx())
        assert isinstance(lustre.grant_read(role), iam.Grant)

    assert findings(template(build)) == []


def test_tags_of_the_vpc_and_of_its_subnets() -> None:
    """As with `ec2.Vpc`, where load balancers find subnets by such tags."""

    def build(scope: Stack) -> None:
        network = TrnNetwork(scope, "Net")
        Tags.of(network.vpc).add("Owner", "me")
        for subnet in network.private_subnets:
            Tags.of(subnet).add("kubernetes.io/role/internal-elb", "1")
        Tags.of(network.public_subnet()).remove("Owner")

    found = template(build)

    def tags(kind: str) -> list[dict[str, str]]:
        return [{t["Key"]: t["Value"] for t in each["Tags"]} for each in properties(found, kind)]

    [vpc] = tags("EC2::VPC")
    assert (vpc["Owner"], vpc["Name"]) == ("me", "trn-vpc")
    by_name = {each["Name"]: {k: v for k, v in each.items() if k != "Name"} for each in tags("EC2::Subnet")}
    private = [each for name, each in by_name.items() if "private" in name]
    assert private == [{"Owner": "me", "kubernetes.io/role/internal-elb": "1"}] * 2
    assert sorted(len(each) for name, each in by_name.items() if "public" in name) == [0, 1]
