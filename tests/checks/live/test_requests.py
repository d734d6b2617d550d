"""What the checks request, against recorded responses: nothing of AWS, real or local, is needed."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest
from botocore import exceptions

from tests.checks.live.cases import BY_NAME, NOW, target
from trainium_cdk.description.checks.live import checks_of, quotas
from trainium_cdk.description.checks.live.aws import Aws as LiveAws
from trainium_cdk.description.checks.live.aws import _of_botocore
from trainium_cdk.description.checks.live.capacity import BLOCK_SIZES, offerings
from trainium_cdk.description.checks.live.data import FileSystem
from trainium_cdk.description.checks.live.network import fetch_vpc
from trainium_cdk.errors import AwsError, NoCredentials, Unreachable

EXISTING = """\
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az4}]
    public_subnets: [{id: subnet-0123456789abcdef1, zone_id: use1-az4}]
"""
EFS = EXISTING + "storage: {efs: {existing: {id: fs-0123456789abcdef0}}}"
FSX = EXISTING + "storage: {fsx: {existing: {id: fs-0123456789abcdef1, mount_name: abcd}}}"


class Aws:
    """Recorded responses by action, and the requests made; None: what was requested does not exist."""

    def __init__(self, **responses: Any) -> None:
        self.responses, self.requests = responses, list[tuple[str, dict[str, Any]]]()

    def __call__(self, action: str, **request: Any) -> Any:
        self.requests.append((action, request))
        response = self.responses[action.partition(":")[2]]
        return response(request) if callable(response) else response

    find = __call__
    first = LiveAws.first


SHARED = EXISTING + "pcluster: {shared_storage: [{name: a, mount_dir: /a, type: TYPE}]}"
OPENZFS = SHARED.replace("TYPE", "fsx-openzfs, id: fsvol-0123456789abcdef0")
DISK = SHARED.replace("TYPE", "ebs, id: vol-0123456789abcdef0")
LUSTRE = {
    "Lifecycle": "AVAILABLE",
    "FileSystemType": "LUSTRE",
    "VpcId": "vpc-1",
    "LustreConfiguration": {"MountName": "abcd"},
}
TARGET = {"AvailabilityZoneId": "use1-az4", "MountTargetId": "fsmt-1", "VpcId": "vpc-1"}
ATTACHED = {"State": "in-use", "AvailabilityZoneId": "use1-az4", "Attachments": [{"InstanceId": "i-1"}]}


@pytest.mark.parametrize(
    ("name", "text", "responses", "found"),
    [
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": [LUSTRE]}}, FileSystem("AVAILABLE", "fsx-lustre", "vpc-1", "abcd")),
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": [{"Lifecycle": "CREATING", "FileSystemType": "OPENZFS", "VpcId": "vpc-1"}]}},
         FileSystem("CREATING", "fsx-openzfs", "vpc-1")),
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": []}}, None),
        ("fsx", FSX, {"DescribeFileSystems": None}, None),
        ("fsx", OPENZFS, {"DescribeVolumes": {"Volumes": [{"FileSystemId": "fs-1", "Lifecycle": "DELETING"}]}, "DescribeFileSystems": {"FileSystems": [{**LUSTRE, "FileSystemType": "OPENZFS"}]}},
         FileSystem("DELETING", "fsx-openzfs", "vpc-1", "abcd")),
        ("fsx", OPENZFS, {"DescribeVolumes": None}, None),
        ("efs", EFS, {"DescribeFileSystems": {"FileSystems": [{"LifeCycleState": "available"}]}, "DescribeMountTargets": {"MountTargets": [TARGET]},
          "DescribeMountTargetSecurityGroups": {"SecurityGroups": ["sg-1"]}, "DescribeSecurityGroups": None, "DescribeSubnets": {"Subnets": [{"CidrBlock": "10.0.0.0/20"}]}},
         FileSystem("available", "efs", "vpc-1", zones=frozenset({"use1-az4"}), closed={("sg-1",): "tcp 2049 from and tcp 2049 to"})),
        ("efs", EFS, {"DescribeFileSystems": {"FileSystems": [{"LifeCycleState": "available"}]}, "DescribeMountTargets": {"MountTargets": []}}, FileSystem("available", "efs")),
        ("efs", EFS, {"DescribeFileSystems": {"FileSystems": []}}, None),
        ("efs", EFS, {"DescribeFileSystems": None}, None),
        ("ebs", DISK, {"DescribeVolumes": {"Volumes": [{**ATTACHED, "State": "available", "Attachments": []}]}}, FileSystem("available", "ebs", zones=frozenset({"use1-az4"}))),
        ("ebs", DISK, {"DescribeVolumes": None}, None),
        ("ebs", DISK, {"DescribeVolumes": {"Volumes": [ATTACHED]}, "DescribeInstances": {"Reservations": [{"Instances": [{}]}]}}, FileSystem("in-use", "ebs", zones=frozenset({"use1-az4"}))),
        ("ebs", DISK, {"DescribeVolumes": {"Volumes": [ATTACHED]}, "DescribeInstances": {"Reservations": [{"Instances": [{"Tags": [{"Key": "parallelcluster:cluster-name", "Value": "trn-slurm"}]}]}]}},
         FileSystem("available", "ebs", zones=frozenset({"use1-az4"}))),
    ],
)  # fmt: skip
def test_existing_volumes(name: str, text: str, responses: dict[str, Any], found: FileSystem | None) -> None:
    aws, check = Aws(**responses), BY_NAME[name]
    assert list(check.fetch(target(text), cast("Any", aws)).values()) == [found]
    assert {action for action, _ in aws.requests} <= set(check.actions)


@pytest.mark.parametrize("exists", [True, False])
def test_a_vpc_of_the_stack_is_not_compared_once_it_is_there(exists: bool) -> None:
    described = {"Stacks": [{"StackStatus": "CREATE_COMPLETE"}]} if exists else None
    aws = Aws(DescribeFileSystems={"FileSystems": [LUSTRE]}, DescribeStacks=described)
    [found] = BY_NAME["fsx"].fetch(target(FSX.removeprefix(EXISTING)), cast("Any", aws)).values()
    assert found.vpc == ("" if exists else "vpc-1")


def rule(protocol: str = "tcp", first: int = 2049, last: int = 2049, **given: Any) -> dict[str, Any]:
    kinds = {
        "cidr": ("IpRanges", "CidrIp"),
        "group": ("UserIdGroupPairs", "GroupId"),
        "list": ("PrefixListIds", "PrefixListId"),
    }
    sources = {kinds[kind][0]: [{kinds[kind][1]: each} for each in values] for kind, values in given.items()}
    return {"IpProtocol": protocol, **sources} | ({} if protocol == "-1" else {"FromPort": first, "ToPort": last})


NODES = rule(cidr=["10.0.0.0/20"])
ADDED = "pcluster: {overrides: {HeadNode: {Networking: {AdditionalSecurityGroups: [sg-0123456789abcdef9]}}}}"
OPEN, NO_WAY_OUT = "", "tcp 2049 to"
BOTH = "tcp 2049 from and tcp 2049 to"


@pytest.mark.parametrize(
    ("engine", "text", "ingress", "egress", "closed"),
    [
        ("slurm", EFS, [], [], BOTH),
        ("slurm", EFS, [NODES], [rule("-1", cidr=["0.0.0.0/0"])], OPEN),
        ("slurm", EFS, [NODES], [], NO_WAY_OUT),  # ParallelCluster alone reads egress
        ("eks", EFS, [NODES], [], OPEN),
        ("pcs", EFS, [NODES], [], OPEN),
        ("eks", EFS, [], [], "tcp 2049 from"),
        ("slurm", EFS, [rule(cidr=["10.0.0.0/21"])], [NODES], "tcp 2049 from"),
        ("slurm", EFS, [rule(cidr=["10.0.0.0/21", "10.0.8.0/21"])], [NODES], OPEN),
        ("slurm", EFS, [rule("udp", cidr=["0.0.0.0/0"])], [NODES], "tcp 2049 from"),
        ("slurm", EFS, [rule(first=988, last=1023, cidr=["0.0.0.0/0"])], [NODES], "tcp 2049 from"),
        ("slurm", EFS, [rule(first=0, last=65535, cidr=["0.0.0.0/0"])], [NODES], OPEN),
        ("slurm", EFS, [rule(list=["pl-1"])], [NODES], OPEN),
        # the group of its own members, as a VPC's default one: the nodes are not in it
        ("slurm", EFS, [rule("-1", group=["sg-1"])], [NODES], "tcp 2049 from"),
        ("slurm", EFS, [rule(group=["sg-stack"])], [rule(group=["sg-cluster"])], OPEN),
        ("slurm", f"{EFS}\n{ADDED}", [rule(group=["sg-0123456789abcdef9"])], [NODES], OPEN),
        ("slurm", EFS, [rule(group=["sg-0123456789abcdef9"])], [NODES], "tcp 2049 from"),
        ("eks", EFS, [rule(group=["sg-eks"])], [], OPEN),
    ],
)  # fmt: skip
def test_rules_of_security_groups(
    engine: str, text: str, ingress: list[dict[str, Any]], egress: list[dict[str, Any]], closed: str
) -> None:
    """`sg-1` is the group of a mount target."""
    tags = {
        "sg-stack": ("aws:cloudformation:stack-name", "TrnPclusterStack"),
        "sg-cluster": ("aws:cloudformation:stack-name", "trn-slurm"),
        "sg-eks": ("aws:eks:cluster-name", "trn-eks"),
    }

    def group(request: dict[str, Any]) -> Any:
        [id] = request["GroupIds"]
        if id == "sg-1":
            return {"SecurityGroups": [{"GroupId": id, "IpPermissions": ingress, "IpPermissionsEgress": egress}]}
        key, value = tags.get(id, ("Name", "other"))
        return {"SecurityGroups": [{"GroupId": id, "Tags": [{"Key": key, "Value": value}]}]}

    aws = Aws(
        DescribeFileSystems={"FileSystems": [{"LifeCycleState": "available"}]},
        DescribeMountTargets={"MountTargets": [TARGET]},
        DescribeMountTargetSecurityGroups={"SecurityGroups": ["sg-1"]},
        DescribeSecurityGroups=group,
        DescribeSubnets={"Subnets": [{"CidrBlock": "10.0.0.0/20"}]},
    )
    [found] = BY_NAME["efs"].fetch(target(text, engine), cast("Any", aws)).values()
    assert found.closed == {("sg-1",): closed}


def test_subnets_of_an_existing_network() -> None:
    aws = Aws(DescribeSubnets={"Subnets": ["first", "second"]}, DescribeVpcs=None)
    found = fetch_vpc(target(EXISTING), cast("Any", aws))
    assert found.subnets == dict.fromkeys(("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"), "first")
    aws = Aws(DescribeSubnets={"Subnets": []}, DescribeVpcs=None)
    assert set(fetch_vpc(target(EXISTING), cast("Any", aws)).subnets.values()) == {None}


@pytest.mark.parametrize(("nodes", "size"), [(1, 1), (3, 4), (33, 64), (64, 64), (999, 64)])
def test_blocks_are_offered_in_sizes(nodes: int, size: int) -> None:
    aws = Aws(
        DescribeCapacityBlockOfferings={"CapacityBlockOfferings": []},
        DescribeAvailabilityZones={"AvailabilityZones": []},
    )
    assert offerings(cast("Any", aws), "trn1.32xlarge", nodes, 24, NOW) == []
    request = aws.requests[0][1]
    assert (request["InstanceType"], request["InstanceCount"], request["CapacityDurationHours"]) == (
        "trn1.32xlarge",
        size,
        24,
    )
    assert request["StartDateRange"] == NOW < request["EndDateRange"] - dt.timedelta(hours=24)
    assert size in BLOCK_SIZES


def test_quotas_have_the_codes_of_service_quotas() -> None:
    every = (*quotas.TRN.values(), quotas.STANDARD_VCPUS, quotas.ADDRESSES, quotas.VPCS)
    assert [(q.service, q.code, q.unit) for q in every] == [
        ("ec2", "L-2C3B7624", "vCPU"), ("ec2", "L-6B0D517C", "vCPU"), ("ec2", "L-1216C47A", "vCPU"), ("ec2", "L-0263D0A3", "address"),
        ("vpc", "L-F678F1CE", "VPC"),
    ]  # fmt: skip
    assert list(quotas.TRN) == ["on-demand", "spot"]
    assert quotas.LIVE == {"Name": "instance-state-name", "Values": ["pending", "running"]}, "those that count"


def test_running_instances_use_the_quota_of_their_kind() -> None:
    """Those of this cluster, spot instances and capacity blocks do not use the on-demand one; EC2 tells vCPUs of a type that we do not know."""
    running = [
        {"InstanceType": "trn1.2xlarge"},
        *[{"InstanceType": "trn9.large"}] * 3,
        {"InstanceType": "trn1.2xlarge", "InstanceLifecycle": "spot"},
        {"InstanceType": "trn1.2xlarge", "InstanceLifecycle": "capacity-block"},
        {"InstanceType": "trn1.2xlarge", "Tags": [{"Key": "parallelcluster:cluster-name", "Value": "trn-slurm"}]},
        {"InstanceType": "c5.large"},
    ]
    aws = Aws(
        DescribeInstances={"Reservations": [{"Instances": running[:2]}, {"Instances": running[2:]}]},
        DescribeInstanceTypes={"InstanceTypes": [{"InstanceType": "trn9.large", "VCpuInfo": {"DefaultVCpus": 10}}]},
        GetServiceQuota=None,
        GetAWSDefaultServiceQuota={"Quota": {"Value": 512}},
    )
    need = BY_NAME["trn-quota-on-demand"].fetch(target(""), cast("Any", aws))
    assert (need.limit, need.used, need.wanted, need.parts) == (512, 8 + 3 * 10, 2048, "16 x trn1.32xlarge")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.NoCredentialsError(), NoCredentials),
        (exceptions.ProfileNotFound(profile="x"), NoCredentials),
        (exceptions.ReadTimeoutError(endpoint_url="https://x"), Unreachable),
        *(
            (kind(endpoint_url="https://x", proxy_url="https://p", error="x"), Unreachable)
            for kind in (
                exceptions.ConnectTimeoutError,
                exceptions.EndpointConnectionError,
                exceptions.SSLError,
                exceptions.ProxyConnectionError,
            )
        ),
        (exceptions.ParamValidationError(report="x"), AwsError),
    ],
)
def test_errors_without_a_response(error: Exception, kind: type[AwsError]) -> None:
    found = _of_botocore(error, "ec2")
    assert type(found) is kind
    assert str(found) == " ".join(str(error).split())


OWN = "custom_ami: ami-0123456789abcdef0"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True),
        (f"pcluster: {{{OWN}}}", False),
        (f"pcluster: {{head: {{{OWN}}}}}", True),
        (f"pcluster: {{queues: [{{{OWN}}}]}}", True),
        (f"pcluster: {{head: {{{OWN}}}, queues: [{{{OWN}}}]}}", False),
    ],
)
def test_official_images_are_looked_up_where_a_node_uses_one(text: str, wanted: bool) -> None:
    assert BY_NAME["parallelcluster"].wanted(target(text, "slurm")) is wanted
    assert "parallelcluster" not in {check.name for check in checks_of("eks")}
