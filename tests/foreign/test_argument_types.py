"""Arguments of another type, for every construct: a TypeError with the construct's path, the argument and its type, as of the CDK's own. A
subclass in a user's app has its own arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, RemovalPolicy, Size, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

import trainium_cdk as trn
from tests.cdk import only
from tests.foreign.foreign import cluster, stack, template, vpc
from trainium_cdk import settings

NEEDED: dict[str, Callable[[Stack], dict[str, Any]]] = {
    "TrnBootstrap": lambda s: {"bucket": s3.Bucket(s, "Bucket")},
    "TrnEks": lambda s: {"cluster": cluster(s), "storage": None},
    "TrnImageBuilder": lambda s: {"bucket": s3.Bucket(s, "Bucket"), "repository": ecr.Repository(s, "Images")},
    "TrnJobNotices": lambda s: {"topic": sns.Topic(s, "Topic")},
    "TrnKey": lambda _: {"description": "Data"},
    "TrnObservability": lambda s: {"cluster": cluster(s)},
    "TrnOutputs": lambda s: {"cluster": cluster(s), "bucket": s3.Bucket(s, "Bucket")},
    "TrnPeering": lambda s: {"vpc": vpc(s), "peer": settings.Peering(vpc_id="vpc-0123456789abcdef0", cidr=("10.1.0.0/16",))},
    "TrnPlugins": lambda s: {"cluster": cluster(s), "node_groups": []},
    "TrnScaler": lambda s: {"cluster": cluster(s), "node_groups": []},
}  # fmt: skip
"""Other arguments that a construct needs."""
IVPC, SUBNETS = "aws_cdk.aws_ec2.IVpc", "aws_cdk.aws_ec2.SubnetSelection or None"
STORAGE = "trainium_cdk.TrnStorage, aws_cdk.aws_efs.IFileSystem, aws_cdk.aws_fsx.LustreFileSystem, aws_cdk.aws_fsx.FileSystemBase"
CLUSTER = "aws_cdk.aws_eks_v2.ICluster, aws_cdk.aws_eks_v2.Cluster or aws_cdk.aws_eks.ICluster"


@pytest.mark.parametrize(
    ("name", "argument", "value", "expected"),
    [
        ("TrnAddons", "cluster", "mine", CLUSTER),
        ("TrnBastionHost", "vpc", "vpc-1", IVPC),
        ("TrnBootstrap", "bucket", "mine", "aws_cdk.aws_s3.IBucket"),
        ("TrnBootstrap", "cluster", 5, "trainium_cdk.settings.Pcluster or trainium_cdk.settings.Pcs"),
        ("TrnBootstrap", "mount_dirs", "/efs", "Sequence[str]"),
        ("TrnBucket", "removal_policy", "destroy", "aws_cdk.RemovalPolicy"),
        ("TrnEfaSecurityGroup", "vpc", "vpc-1", IVPC),
        ("TrnEks", "cluster", "mine", CLUSTER),
        ("TrnEksCluster", "vpc", "vpc-1", IVPC),
        ("TrnImageBuilder", "bucket", "mine", "aws_cdk.aws_s3.IBucket"),
        ("TrnJobNotices", "log_group", "/trainium/x/metrics", "aws_cdk.aws_logs.ILogGroup"),
        ("TrnKey", "removal_policy", True, "aws_cdk.RemovalPolicy"),
        ("TrnNetwork", "max_azs", "2", "int"),
        ("TrnNetwork", "network", "10.0.0.0/16", "trainium_cdk.settings.Network"),
        ("TrnNodeGroup", "cluster", "mine", CLUSTER),
        ("TrnNodeRole", "storage", "fs-1", f"{STORAGE} or None"),
        ("TrnObservability", "longest_wait", 6, "aws_cdk.Duration or None"),
        ("TrnOutputs", "bucket", "mine", "aws_cdk.aws_s3.IBucket"),
        ("TrnPcluster", "vpc", "vpc-1", IVPC),
        ("TrnPcluster", "vpc_subnets", ["subnet-1"], SUBNETS),
        ("TrnPclusterProvider", "role", "arn:aws:iam::111122223333:role/R", "aws_cdk.aws_iam.IRole, aws_cdk.aws_iam.Role or None"),
        ("TrnPcsCluster", "vpc", "vpc-1", IVPC),
        ("TrnPeering", "vpc", "vpc-1", IVPC),
        ("TrnPlugins", "cluster", "mine", CLUSTER),
        ("TrnRegistry", "registry", 20, "trainium_cdk.settings.Registry"),
        ("TrnScaler", "cluster", "mine", CLUSTER),
        ("TrnStorage", "vpc", "vpc-1", IVPC),
        ("TrnSystemNodes", "cluster", "mine", CLUSTER),
    ],
)  # fmt: skip
def test_another_type_is_refused_with_path_argument_and_type(
    name: str, argument: str, value: object, expected: str
) -> None:
    scope = stack()
    given = {**NEEDED.get(name, lambda _: {})(scope), argument: value}
    with pytest.raises(TypeError) as refused:
        getattr(trn, name)(scope, "It", **given)
    assert (
        str(refused.value)
        == f"Foreign/It: type of argument {argument} must be {expected}; got {type(value).__name__} instead"
    )


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("TrnNodeGroup", {"instance_type": "trn1.32xlarge"}, "got an unexpected keyword argument 'instance_type'. Fix: give nodes=settings.NodeGroup(instance_type=...)"),
        ("TrnPcluster", {"compute_resources": ()}, "got an unexpected keyword argument 'compute_resources'. Fix: give queues=[settings.Queue(compute_resources=...)]"),
        ("TrnStorage", {"throughput": "elastic"}, "got an unexpected keyword argument 'throughput'. Fix: give efs=settings.Efs(throughput=...) or lustre=settings.Fsx(throughput=...)"),
        ("TrnStorage", {"encryption_keys": None}, "got an unexpected keyword argument 'encryption_keys'. Fix: give encryption_key"),
        ("TrnBucket", {"zzz": 1}, "got an unexpected keyword argument 'zzz'"),
        ("TrnStorage", {}, "missing a required argument: 'vpc'"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_there_are_named_with_path_and_place(name: str, given: Any, told: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(trn, name)(stack(), "It", **given)
    assert str(refused.value) == f"Foreign/It: {told}"


class Positional(trn.TrnBucket):
    def __init__(self, scope: Construct, id: str, team: str, **more: Any) -> None:
        super().__init__(scope, id, **more)
        self.team = team


class ByAnotherName(trn.TrnBucket):
    def __init__(self, scope: Construct, construct_id: str, **more: Any) -> None:
        super().__init__(scope, construct_id, **more)


class Fixed(trn.TrnBucket):
    def __init__(self, stack: Stack) -> None:
        super().__init__(scope=stack, id="Fixed")


class Zones(trn.TrnBucket):
    def __init__(self, scope: Construct, id: str, *, zones: set[str]) -> None:
        super().__init__(scope, id, expiration={zone: Duration.days(1) for zone in zones})


class Number(trn.TrnBucket):
    def __init__(self, scope: Construct, id: str, *, days: str = "1") -> None:
        super().__init__(scope, id, expiration={"": Duration.days(int(days))})


@pytest.mark.parametrize(
    "build",
    [
        lambda s: Positional(s, "It", "speech"),
        lambda s: ByAnotherName(s, construct_id="It"),
        lambda s: ByAnotherName(s, "It", removal_policy=RemovalPolicy.RETAIN),
        lambda s: Fixed(s),
        lambda s: Zones(s, "It", zones={"a"}),
        lambda s: Number(s, "It", days=2),  # type: ignore[arg-type]
    ],
)
def test_a_subclass_has_arguments_of_its_own(build: Callable[[Stack], trn.TrnBucket]) -> None:
    assert build(stack()).bucket


def test_what_a_subclass_passes_on_is_checked() -> None:
    with pytest.raises(
        TypeError, match=r"^Foreign/It: type of argument removal_policy must be aws_cdk.RemovalPolicy; got str"
    ):
        ByAnotherName(stack(), construct_id="It", removal_policy="destroy")


def test_the_table_has_every_construct() -> None:
    [mark] = [m for m in test_another_type_is_refused_with_path_argument_and_type.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == {
        name for name in trn.__all__ if isinstance(getattr(trn, name), type) and name.startswith("Trn")
    }


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda s: trn.TrnStorage(s, "S", vpc=vpc(s), efs=True), r"argument efs must be trainium_cdk.settings.Efs, aws_cdk.aws_efs.IFile"),
        (lambda s: trn.TrnStorage(s, "S", vpc=vpc(s), lustre=1200), r"argument lustre must be trainium_cdk.settings.Fsx, "),
        (lambda s: trn.TrnBucket(s, "S", expiration={"a/": 30}), r"argument expiration\['a/'\] must be aws_cdk.Duration; got int"),
        (lambda s: trn.TrnPcluster(s, "S", vpc=vpc(s), queues=["trn"]), r"argument queues\[0\] must be trainium_cdk.settings.Queue; got str"),
        (lambda s: trn.TrnPcluster(s, "S", vpc=vpc(s), queues=[settings.PcsQueue()]), r"queues\[0\] must be trainium_cdk.settings.Queue; got trainium_cdk.settings.PcsQueue"),
        (lambda s: trn.TrnPcluster(s, "S", vpc=vpc(s), storage="fs-12345678"), "argument storage must be trainium_cdk.TrnStorage, "),
        (lambda s: trn.TrnPcluster(s, "S", vpc=trn.TrnNetwork(s, "N")), "got trainium_cdk.TrnNetwork instead. Fix: give its attribute `vpc`"),
        (lambda s: trn.TrnBootstrap(s, "S", bucket=trn.TrnBucket(s, "B")), "got trainium_cdk.TrnBucket instead. Fix: give its attribute `bucket`"),
    ],
)  # fmt: skip
def test_parts_of_an_argument_are_checked_and_ours_are_unwrapped(build: Callable[[Stack], object], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        build(stack())


def test_mappings_are_taken_for_structs_and_for_settings() -> None:
    """As the CDK takes them; a wrong one is refused with the construct's path and the argument."""

    def build(scope: Stack) -> None:
        within: Any = {"subnet_type": ec2.SubnetType.PRIVATE_WITH_EGRESS}
        storage = trn.TrnStorage(scope, "S", vpc=vpc(scope), vpc_subnets=within, efs={"backups": True})  # type: ignore[arg-type]
        assert storage.file_systems

    assert only(template(build), "EFS::FileSystem")["BackupPolicy"] == {"Status": "ENABLED"}
    wrong: Any = [{"compute_resources": [{"max_nodes": 0}]}]
    with pytest.raises(
        settings.SettingsError, match=r"^Foreign/P: error: queues\[0\].compute_resources\[0\].max_nodes = 0: "
    ):
        template(lambda scope: trn.TrnPcluster(scope, "P", vpc=vpc(scope), queues=wrong))


def test_settings_take_the_types_of_the_cdk() -> None:
    """`InstanceType`, `Size` and `Duration`, in place of a name and of numbers."""
    kind: Any = ec2.InstanceType("trn1.2xlarge")
    assert settings.Queue.of(kind, 4).compute_resources[0].instance_type == "trn1.2xlarge"
    given: dict[str, Any] = {
        "scale_down_idle_minutes": Duration.hours(1),
        "head": {"root_volume_gib": Size.tebibytes(1)},
    }
    described = settings.Pcluster.model_validate(given)
    assert (described.scale_down_idle_minutes, described.head.root_volume_gib) == (60, 1024)
    lustre = settings.Fsx.model_validate(
        {"capacity_gib": Size.gibibytes(2400), "deployment": "PERSISTENT_2", "backup_days": Duration.days(7)}
    )
    assert (lustre.capacity_gib, lustre.backup_days) == (2400, 7)
