"""What the sandbox adds to the emulator's EC2, through boto3."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory
from sandbox.pcluster_validator.seed import reservation, reservation_group, seed
from sandbox.testing import until


@pytest.fixture
def ec2(local_aws: LocalAws) -> Any:
    return local_aws.client("ec2", "us-west-2")


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_zones_and_offerings_are_the_regions_own(ec2: Any) -> None:
    zones = {zone["ZoneId"]: zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    assert zones["usw2-az4"] == "us-west-2d"
    for location, expected in (("availability-zone-id", "usw2-az4"), ("availability-zone", "us-west-2d")):
        offered = ec2.describe_instance_type_offerings(
            LocationType=location, Filters=[{"Name": "instance-type", "Values": ["trn1.*"]}]
        )["InstanceTypeOfferings"]
        assert expected in {entry["Location"] for entry in offered if entry["InstanceType"] == "trn1.32xlarge"}


def test_instance_types_have_their_network_cards(ec2: Any) -> None:
    found = ec2.describe_instance_types(InstanceTypes=["trn1.32xlarge"])["InstanceTypes"][0]["NetworkInfo"]
    assert len(found["NetworkCards"]) == found["EfaInfo"]["MaximumEfaInterfaces"] == 8
    efa = ec2.describe_instance_types(
        Filters=[
            {"Name": "network-info.efa-supported", "Values": ["true"]},
            {"Name": "instance-type", "Values": ["trn1*"]},
        ]
    )["InstanceTypes"]
    assert {entry["InstanceType"] for entry in efa} == {"trn1.32xlarge", "trn1n.32xlarge"}
    with pytest.raises(ClientError, match=r"do not exist: \[trn9.huge\]") as error:
        ec2.describe_instance_types(InstanceTypes=["trn9.huge"])
    assert code(error) == "InvalidInstanceType"


def test_a_dry_run_checks_and_launches_nothing(ec2: Any, local_aws: LocalAws) -> None:
    client = partial(local_aws.client, region="us-west-2")
    made = seed(client, "usw2-az4")
    before = inventory(client)
    wanted = {"InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1, "DryRun": True}
    wrong = {
        "SubnetId": ("subnet-0", "InvalidSubnetID.NotFound"),
        "KeyName": ("missing", "InvalidKeyPair.NotFound"),
        "SecurityGroupIds": (["sg-0"], "InvalidGroup.NotFound"),
        "ImageId": ("ami-00000000000000bad", "InvalidAMIID.NotFound"),
        "InstanceType": ("c5.gigantic", "InvalidParameterValue"),
    }
    for name, (value, expected) in wrong.items():
        with pytest.raises(ClientError) as error:
            ec2.run_instances(**{**wanted, name: value})
        assert (name, code(error)) == (name, expected)
    with pytest.raises(ClientError) as error:
        ec2.run_instances(**wanted, SubnetId=made.private_subnet, KeyName=made.key_name)
    assert code(error) == "DryRunOperation"
    assert beyond(inventory(client), before) == {}


@pytest.mark.parametrize("public", [True, False])
def test_an_instance_is_in_its_subnet_and_its_disk_is_deleted_with_it(
    ec2: Any, local_aws: LocalAws, public: bool
) -> None:
    client = partial(local_aws.client, region="us-west-2")
    made = seed(client, "usw2-az4")
    before = inventory(client)
    subnet = ec2.describe_subnets(SubnetIds=[made.public_subnet if public else made.private_subnet])["Subnets"][0]
    launched = ec2.run_instances(InstanceType="c5.large", MinCount=2, MaxCount=2, SubnetId=subnet["SubnetId"])[
        "Instances"
    ]
    addresses = {entry["PrivateIpAddress"] for entry in launched}
    assert len(addresses) == 2
    assert all(ip_address(address) in ip_network(subnet["CidrBlock"]) for address in addresses)
    assert {entry["Placement"]["AvailabilityZone"] for entry in launched} == {"us-west-2d"}
    assert {"PublicIpAddress" in entry for entry in launched} == {public}
    ec2.terminate_instances(InstanceIds=[entry["InstanceId"] for entry in launched])
    assert beyond(inventory(client), before) == {}


BLOCK = {"InstanceType": "trn1.32xlarge", "InstanceCount": 1, "CapacityDurationHours": 24}


@pytest.mark.parametrize(
    ("operation", "request_", "message"),
    [
        ("describe_capacity_block_offerings", {**BLOCK, "CapacityDurationHours": 36}, "in 1-day increments up to 14 days"),
        ("describe_capacity_block_offerings", {**BLOCK, "CapacityDurationHours": 15 * 24}, "7-day increments up to 182 days"),
        ("describe_capacity_block_offerings", {**BLOCK, "InstanceCount": 65}, "not within 1 to 64"),
        ("describe_capacity_block_offerings", {"CapacityDurationHours": 24, "InstanceCount": 1}, "MissingParameter.*InstanceType"),
        ("get_spot_placement_scores", {"InstanceTypes": ["trn1.32xlarge"]}, "MissingParameter.*TargetCapacity"),
        ("get_spot_placement_scores", {"TargetCapacity": 1}, "either InstanceTypes or InstanceRequirementsWithMetadata"),
        ("get_spot_placement_scores", {"InstanceTypes": ["x"], "TargetCapacity": 0}, "is not within 1 to"),
        ("get_spot_placement_scores", {"InstanceTypes": ["x"], "TargetCapacity": 1, "RegionNames": ["us-east-1"] * 11}, "items is not within 0 to 10"),
        ("get_spot_placement_scores", {"InstanceTypes": ["x"], "TargetCapacity": 1, "TargetCapacityUnitType": "nodes"}, "none of vcpu"),
        ("describe_spot_price_history", {"Nonsense": "1"}, "UnknownParameter"),
        ("describe_regions", {"RegionNames": ["eu-central-9"]}, "Invalid region 'eu-central-9'"),
    ],
)  # fmt: skip
def test_what_botocores_model_does_not_allow_is_refused(
    local_aws: LocalAws, operation: str, request_: dict[str, Any], message: str
) -> None:
    with lenient(local_aws) as client:
        if nonsense := request_.get("Nonsense"):  # boto3 itself sends no member that its model lacks
            client.meta.events.register("before-call", lambda params, **_: params["body"].update(Nonsense=nonsense))
            request_ = {}
        with pytest.raises(ClientError, match=message):
            getattr(client, operation)(**request_)


@contextlib.contextmanager
def lenient(aws: LocalAws) -> Iterator[Any]:
    """A client that sends what its own checks would refuse."""
    client = boto3.client(
        "ec2", endpoint_url=aws.endpoint, region_name="us-west-2", aws_access_key_id="test", aws_secret_access_key="test",
        config=Config(parameter_validation=False),
    )  # fmt: skip
    yield client
    client.close()


def test_spot_prices_have_a_history(ec2: Any) -> None:
    """Without a start all changes of all products; with one those since then, and the one that applied."""
    whole = ec2.describe_spot_price_history(InstanceTypes=["trn1.32xlarge"])["SpotPriceHistory"]
    assert {e["ProductDescription"] for e in whole} == {"Linux/UNIX", "SUSE Linux", "Windows"}
    now = dt.datetime.now(dt.UTC)
    for ago, count in ((dt.timedelta(0), 1), (dt.timedelta(hours=10), 2), (dt.timedelta(days=9), 3)):
        found = ec2.describe_spot_price_history(
            InstanceTypes=["trn1.32xlarge"], ProductDescriptions=["Linux/UNIX"], StartTime=now - ago
        )["SpotPriceHistory"]
        zone = [float(e["SpotPrice"]) for e in found if e["AvailabilityZoneId"] == "usw2-az4"]
        assert zone == [6.4, 9.6, 12.8][:count]


def test_a_region_that_is_not_enabled(ec2: Any, local_aws: LocalAws) -> None:
    local_aws.set_answers("regions", {"ap-south-2": "not-opted-in"})
    try:
        statuses = {r["RegionName"]: r["OptInStatus"] for r in ec2.describe_regions(AllRegions=True)["Regions"]}
        assert statuses["ap-south-2"] == "not-opted-in"
        assert "ap-south-2" not in {r["RegionName"] for r in ec2.describe_regions()["Regions"]}
        with pytest.raises(ClientError) as error:
            local_aws.client("ec2", "ap-south-2").describe_vpcs()
        assert code(error) == "AuthFailure"
    finally:
        local_aws.set_answers("regions", None)


def test_reservations_are_listed_and_cancelled(ec2: Any, local_aws: LocalAws) -> None:
    make = partial(reservation, partial(local_aws.client, region="us-west-2"), "trn1.32xlarge", 4, "us-west-2d")
    odcr, block = make(block=False), make(block=True)
    found = {
        entry["CapacityReservationId"]: entry
        for entry in ec2.describe_capacity_reservations(CapacityReservationIds=[odcr, block])["CapacityReservations"]
    }
    assert (found[odcr]["ReservationType"], found[block]["ReservationType"]) == ("default", "capacity-block")
    assert (found[block]["AvailabilityZoneId"], found[block]["TotalInstanceCount"]) == ("usw2-az4", 4)
    ec2.cancel_capacity_reservation(CapacityReservationId=odcr)
    active = ec2.describe_capacity_reservations(Filters=[{"Name": "state", "Values": ["active"]}])
    assert odcr not in {entry["CapacityReservationId"] for entry in active["CapacityReservations"]}
    with pytest.raises(ClientError, match="Capacity Block"):
        ec2.cancel_capacity_reservation(CapacityReservationId=block)


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_key_pairs_are_real_keys_of_their_type(ec2: Any, kind: str) -> None:
    made = ec2.create_key_pair(KeyName=f"test-{kind}", KeyType=kind)
    head = "OPENSSH PRIVATE KEY" if kind == "ed25519" else "RSA PRIVATE KEY"
    assert made["KeyMaterial"].startswith(f"-----BEGIN {head}-----")
    assert ec2.describe_key_pairs(KeyNames=[f"test-{kind}"])["KeyPairs"][0]["KeyType"] == kind
    with pytest.raises(ClientError) as error:
        ec2.create_key_pair(KeyName=f"test-{kind}")
    assert code(error) == "InvalidKeyPair.Duplicate"
    ec2.delete_key_pair(KeyPairId=made["KeyPairId"])
    with pytest.raises(ClientError) as error:
        ec2.describe_key_pairs(KeyNames=[f"test-{kind}"])
    assert code(error) == "InvalidKeyPair.NotFound"


def test_a_security_group_in_use_is_not_deleted(ec2: Any, local_aws: LocalAws) -> None:
    """In use by a rule of another group, by a load balancer, and for a while by the interfaces of a deleted one."""
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    group, other = (
        ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"] for name in ("a", "b")
    )
    rule = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[rule])
    elb = local_aws.client("elbv2", "us-west-2")
    made = elb.create_load_balancer(Name="in-use", Type="network", Subnets=[subnet], SecurityGroups=[group])
    balancer = made["LoadBalancers"][0]["LoadBalancerArn"]

    def refused() -> bool:
        try:
            ec2.delete_security_group(GroupId=group)
        except ClientError as error:
            return bool(error.response["Error"]["Code"] == "DependencyViolation")
        return False

    assert refused()
    [described] = ec2.describe_security_groups(GroupIds=[other])["SecurityGroups"]
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=described["IpPermissions"])
    with pytest.raises(ClientError, match=r"InvalidPermission\.NotFound"):
        ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=described["IpPermissions"])
    assert refused()
    elb.delete_load_balancer(LoadBalancerArn=balancer)
    assert refused()
    assert until(lambda: not refused())
    ec2.delete_security_group(GroupId=other)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_instances_are_filtered(ec2: Any) -> None:
    """ministack ignores these filters."""
    made = ec2.run_instances(InstanceType="trn1.2xlarge", MinCount=2, MaxCount=2)["Instances"]
    ids = [instance["InstanceId"] for instance in made]

    def found(name: str, *values: str) -> list[str]:
        pages = ec2.describe_instances(Filters=[{"Name": name, "Values": [*values]}])["Reservations"]
        return [instance["InstanceId"] for page in pages for instance in page["Instances"]]

    assert found("private-ip-address", made[1]["PrivateIpAddress"], "192.0.2.1") == ids[1:]
    assert found("instance-id", ids[0]) == ids[:1]
    with pytest.raises(ClientError, match="The filter 'private-ip' is invalid"):
        found("private-ip", "192.0.2.1")
    ec2.terminate_instances(InstanceIds=ids)


def test_reservations_are_in_placement_groups_and_in_resource_groups(local_aws: LocalAws) -> None:
    ec2, groups = (local_aws.client(name, "us-west-2") for name in ("ec2", "resource-groups"))
    near = ec2.create_placement_group(GroupName="near", Strategy="cluster")["PlacementGroup"]["GroupArn"]
    make = partial(
        reservation, lambda name: local_aws.client(name, "us-west-2"), "trn1.32xlarge", 1, "us-west-2d", block=False
    )
    one = make(placement=near)
    [shown] = ec2.describe_capacity_reservations(CapacityReservationIds=[one])["CapacityReservations"]
    assert shown["PlacementGroupArn"] == near
    with pytest.raises(ClientError) as error:
        make(placement=near.replace("near", "far"))
    assert code(error) == "InvalidPlacementGroup.Unknown"
    arn = reservation_group(lambda name: local_aws.client(name, "us-west-2"), one)
    [member] = groups.list_group_resources(Group=arn)["Resources"]
    assert member["Identifier"] == {
        "ResourceArn": shown["CapacityReservationArn"],
        "ResourceType": "AWS::EC2::CapacityReservation",
    }
    data = {
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationResourceGroupArn": arn}}
    }
    made = ec2.create_launch_template(LaunchTemplateName="grouped", LaunchTemplateData=data)["LaunchTemplate"]
    [version] = ec2.describe_launch_template_versions(LaunchTemplateId=made["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    assert version["LaunchTemplateData"]["CapacityReservationSpecification"] == data["CapacityReservationSpecification"]
