"""`TrnPcluster` and `TrnBootstrap` in a VPC, and on file systems, that are not ours."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as sm
from aws_cdk.assertions import Template

from tests.cdk import findings, needs, properties, resources
from tests.foreign.foreign import errors, stack, template, vpc
from trainium_cdk import (
    TrnBootstrap,
    TrnBucket,
    TrnOutputs,
    TrnPcluster,
    TrnPclusterProvider,
    TrnPcsCluster,
    outputs,
    settings,
)
from trainium_cdk.description.outputs.contract import UNKNOWN

TWO = (
    settings.Queue(name="large"),
    settings.Queue(
        name="block",
        capacity_type="capacity-block",
        compute_resources=(
            settings.ComputeResource(
                instance_type="trn2.48xlarge", min_nodes=4, max_nodes=4, reservation="cr-0123456789abcdef0"
            ),
        ),
    ),
)


def config(found: Template) -> dict[str, Any]:
    [cluster] = found.find_resources("Custom::PclusterCluster").values()
    parsed: dict[str, Any] = cluster["Properties"]["ClusterConfiguration"]
    return parsed


@pytest.mark.parametrize("region", ["us-west-2", ""])
def test_a_vpc_is_all_that_it_needs(region: str) -> None:
    found = template(lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s)), region)
    given = config(found)
    assert given["Region"] == (region or {"Ref": "AWS::Region"})
    [choice] = found.find_resources("Custom::TrnSubnetChoice")
    queue, cpu = given["Scheduling"]["SlurmQueues"]
    assert (queue["Name"], cpu["Name"]) == ("compute1", "cpu")
    assert cpu["Networking"]["SubnetIds"] == [
        {"Ref": next(n for n in resources(found, "EC2::Subnet") if "Private" in n)}
    ]
    assert queue["Networking"]["SubnetIds"] == [{"Fn::GetAtt": [choice, "SubnetId"]}]
    assert queue["Networking"]["PlacementGroup"] == {"Enabled": True}
    assert [s["EfsSettings"]["FileSystemId"] for s in given["SharedStorage"]] == [{"Ref": next(iter(resources(found, "EFS::FileSystem")))}]  # fmt: skip
    [cluster] = found.find_resources("Custom::PclusterCluster")
    for kind in ("EC2::NatGateway", "EC2::Route", "EFS::MountTarget", "SSM::Parameter"):
        assert set(resources(found, kind)) <= needs(found, cluster), kind
    assert findings(found) == []


def test_existing_resources_are_accepted() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        bucket = s3.Bucket(scope, "Theirs", enforce_ssl=True)
        cluster = TrnPcluster(
            scope,
            "Slurm",
            vpc=within,
            storage=efs.FileSystem(scope, "Home", vpc=within),
            bootstrap=TrnBootstrap(
                scope,
                "Scripts",
                bucket=bucket,
                cluster=settings.Pcluster(queues=TWO, os="ubuntu2204"),
            ),
            queues=TWO,
            queue_subnets={name: within.private_subnets[i] for i, name in enumerate(("large", "block"))},
            head_node=settings.HeadNode(instance_type="m5.xlarge"),
            head_node_subnet=within.private_subnets[1],
            cluster_name="theirs",
            cluster=settings.Pcluster(os="ubuntu2204", custom_ami="ami-0123456789abcdef0"),
        )
        assert bucket.grant_read(cluster).success

    found = template(build, "")
    given = config(found)
    private = [{"Ref": name} for name in resources(found, "EC2::Subnet") if "Private" in name]
    one, two, cpu = given["Scheduling"]["SlurmQueues"]
    assert [q["Networking"]["SubnetIds"] for q in (one, two)] == [[p] for p in private]
    assert (cpu["Name"], cpu["Networking"]["SubnetIds"]) == ("cpu", [private[0]])
    assert given["HeadNode"]["Networking"]["SubnetId"] == private[1]
    assert not found.find_resources("Custom::TrnSubnetChoice")
    assert "Theirs" in str(given["HeadNode"]["CustomActions"])
    assert findings(found) == []


def test_lustre_of_the_cdk_is_mounted() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        fast = fsx.LustreFileSystem(
            scope, "Fast", vpc=within, vpc_subnet=within.private_subnets[0], storage_capacity_gib=1200,
            lustre_configuration=fsx.LustreConfiguration(deployment_type=fsx.LustreDeploymentType.SCRATCH_2),
        )  # fmt: skip
        TrnPcluster(scope, "Slurm", vpc=within, storage=fast)

    found = template(build)
    [mounted] = config(found)["SharedStorage"]
    assert (mounted["StorageType"], mounted["MountDir"]) == ("FsxLustre", "/fsx")
    assert mounted["FsxLustreSettings"] == {"FileSystemId": {"Ref": next(iter(resources(found, "FSx::FileSystem")))}}


def test_two_sets_of_scripts_do_not_collide() -> None:
    def build(scope: Stack) -> None:
        bucket = TrnBucket(scope, "Files").bucket
        for id in ("One", "Two"):
            TrnBootstrap(scope, id, bucket=bucket)

    parameters = properties(template(build), "SSM::Parameter")
    assert len(parameters) == 2
    assert all("Name" not in p for p in parameters)


def test_the_grant_of_the_jobs_bucket_is_complete() -> None:
    grants: list[iam.Grant] = []

    def build(scope: Stack) -> None:
        cluster = TrnPcluster(scope, "Slurm", vpc=vpc(scope), cluster_name="theirs")
        grants.append(cluster.grant_bucket(s3.Bucket(scope, "Files")))

    found = template(build)
    [grant] = grants
    assert grant.success
    assert len(grant.principal_statements) == 4
    policies = [*properties(found, "IAM::ManagedPolicy"), *properties(found, "IAM::Policy")]
    statements = [s for p in policies for s in p["PolicyDocument"]["Statement"]]
    [bucket] = [id for id in resources(found, "S3::Bucket") if id.startswith("Files")]
    prefixes = [s for s in statements if bucket in str(s["Resource"]) and "/node-scripts/" not in str(s["Resource"])]
    [stays] = [s for s in prefixes if s["Effect"] == "Deny"]
    assert "/jobs/code/*" in str(stays["Resource"]), "no job changes what others have sent"
    assert len(prefixes) == 5
    [answers] = [s for s in prefixes if "/trn/responses/*" in str(s["Resource"])]
    assert answers["Action"] == "s3:PutObject", "the head node writes large responses, and reads none"
    [listing] = [s for s in prefixes if s["Action"] == "s3:ListBucket"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["jobs/*"]}}


def test_trn_understands_the_stack() -> None:
    def build(scope: Stack) -> None:
        cluster = TrnPcluster(scope, "Slurm", vpc=vpc(scope), cluster_name="theirs")
        TrnOutputs(scope, "Outputs", cluster=cluster, bucket=TrnBucket(scope, "Files").bucket)

    found = template(build).to_json()["Outputs"]
    values = {k: v["Value"] if isinstance(v["Value"], str) else UNKNOWN for k, v in found.items()}
    cluster = outputs.parse("Foreign", "us-west-2", values)
    assert isinstance(cluster, outputs.SlurmCluster)
    assert (cluster.cluster_name, cluster.mount_dirs) == ("theirs", ("/efs",))
    assert [f.instance_type for f in cluster.fleets] == ["trn1.32xlarge"]


def test_accounting_in_a_database_of_the_app() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        database = rds.DatabaseInstance(
            scope, "Db", engine=rds.DatabaseInstanceEngine.mysql(version=rds.MysqlEngineVersion.VER_8_0), vpc=within
        )
        secret = sm.Secret(scope, "Password")
        address = database.instance_endpoint.socket_address
        for id, uri in (("One", address), ("Two", database.instance_endpoint.hostname)):
            accounting = settings.Accounting(uri=uri, user="slurm", password_secret=secret.secret_arn)
            TrnPcluster(scope, id, vpc=within, cluster=settings.Pcluster(accounting=accounting))

    clusters = template(build).find_resources("Custom::PclusterCluster").values()
    databases = [c["Properties"]["ClusterConfiguration"]["Scheduling"]["SlurmSettings"]["Database"] for c in clusters]
    assert [next(iter(each["PasswordSecretArn"])) for each in databases] == ["Ref", "Ref"]
    assert [next(iter(each["Uri"])) for each in databases] == ["Fn::Join", "Fn::GetAtt"]


def test_the_stacks_own_name_is_refused() -> None:
    with pytest.raises(settings.SettingsError, match=r"^Foreign/.*: error: cluster_name = .*: the stack has this name"):
        template(lambda s: TrnPcluster(s, "Slurm", vpc=vpc(s), cluster_name="Foreign"))


@pytest.mark.parametrize("make", [TrnPcluster, TrnPcsCluster])
def test_policies_of_nodes_are_checked_in_other_apps_too(make: Any) -> None:
    def of(name: str) -> Any:
        policy = iam.ManagedPolicy.from_aws_managed_policy_name(name)
        return lambda s: make(s, "It", vpc=vpc(s), node_policies=[policy])

    [found] = errors(of("AdministratorAccess"))
    assert "these nodes, and all jobs, would have full access to the account" in found
    [found] = errors(of("AmazonS3FullAccess"))
    assert "full access to every bucket of the account. Fix: copy with `trn cp`" in found
    template(of("AmazonS3ReadOnlyAccess"))


def test_the_template_of_parallelcluster_is_taken_from_regions_that_it_lists() -> None:
    TrnPclusterProvider(stack("us-west-2"), "It")
    TrnPclusterProvider(Stack(App(), "Anywhere"), "It")
    with pytest.raises(
        ValueError, match=r"It: ParallelCluster .* does not list the region mx-central-1, .*could be anybody's"
    ):
        TrnPclusterProvider(Stack(App(), "S", env=Environment(region="mx-central-1")), "It")
