"""What the checks request, against recorded responses: nothing of AWS, real or local, is needed."""

from __future__ import annotations

import datetime as dt
from typing import Any, cast

import pytest
from botocore import exceptions

from tests.checks.live.cases import BY_NAME, NOW, target
from trainium_cdk.checks.live import checks_of, quotas
from trainium_cdk.checks.live.aws import Aws as LiveAws
from trainium_cdk.checks.live.aws import _of_botocore
from trainium_cdk.checks.live.data import FileSystem
from trainium_cdk.checks.live.network import fetch_vpc
from trainium_cdk.checks.live.reservations import BLOCK_SIZES, offerings
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
        return self.responses[action.partition(":")[2]]

    find = __call__
    first = LiveAws.first


@pytest.mark.parametrize(
    ("name", "text", "responses", "found"),
    [
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": [{"Lifecycle": "AVAILABLE", "FileSystemType": "LUSTRE", "VpcId": "vpc-1",
          "LustreConfiguration": {"MountName": "abcd"}}]}}, FileSystem("AVAILABLE", "LUSTRE", "vpc-1", "abcd")),
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": [{"Lifecycle": "CREATING", "FileSystemType": "OPENZFS"}]}}, FileSystem("CREATING", "OPENZFS")),
        ("fsx", FSX, {"DescribeFileSystems": {"FileSystems": []}}, None),
        ("fsx", FSX, {"DescribeFileSystems": None}, None),
        ("efs", EFS, {"DescribeFileSystems": {"FileSystems": [{"LifeCycleState": "available"}]},
          "DescribeMountTargets": {"MountTargets": [{"AvailabilityZoneId": "use1-az4"}]}}, FileSystem("available", "EFS", zones=frozenset({"use1-az4"}))),
        ("efs", EFS, {"DescribeFileSystems": {"FileSystems": []}}, None),
        ("efs", EFS, {"DescribeFileSystems": None}, None),
    ],
)  # fmt: skip
def test_file_systems(name: str, text: str, responses: dict[str, Any], found: FileSystem | None) -> None:
    aws, check = Aws(**responses), BY_NAME[name]
    assert check.fetch(target(text), cast("Any", aws)) == {name: found}
    assert {action for action, _ in aws.requests} <= set(check.actions)


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
