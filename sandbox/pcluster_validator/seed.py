"""The AWS resources that a cluster configuration refers to, for tests of the configuration alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Client = Callable[[str], Any]


@dataclass(frozen=True)
class Seeded:
    """Ids and names of the resources of `seed`."""

    vpc: str
    public_subnet: str
    private_subnet: str
    security_group: str
    key_name: str
    rsa_key_name: str
    bucket: str
    script: str
    efs: str
    fsx: str
    zone: str


def seed(client: Client, zone_id: str = "use1-az6") -> Seeded:
    """Create a network with a NAT route, keys, a bucket with a script, EFS and FSx for Lustre in one zone.

    client: service name -> boto3 client (`LocalAws.client`). Each call creates a new set.
    """
    ec2, s3, efs = client("ec2"), client("s3"), client("efs")
    mark = uuid.uuid4().hex[:8]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{attribute: {"Value": True}})
    public, private = (
        ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZoneId=zone_id)["Subnet"]
        for block in ("10.0.0.0/24", "10.0.16.0/20")
    )
    ec2.modify_subnet_attribute(SubnetId=public["SubnetId"], MapPublicIpOnLaunch={"Value": True})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=public["SubnetId"], AllocationId=address)["NatGateway"]
    for subnet, target in ((public, {"GatewayId": gateway}), (private, {"NatGatewayId": nat["NatGatewayId"]})):
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **target)
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet["SubnetId"])
    group = ec2.create_security_group(GroupName=f"seed-{mark}", Description="among us", VpcId=vpc)["GroupId"]
    everything = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=everything)
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=everything)
    for kind in ("ed25519", "rsa"):
        ec2.create_key_pair(KeyName=f"seed-{mark}-{kind}", KeyType=kind)
    bucket = f"seed-{mark}"
    region = s3.meta.region_name
    elsewhere = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=bucket, **elsewhere)
    s3.put_object(Bucket=bucket, Key="entry.sh", Body=b"#!/bin/bash\n")
    shared = efs.create_file_system(CreationToken=mark)["FileSystemId"]
    efs.create_mount_target(FileSystemId=shared, SubnetId=private["SubnetId"], SecurityGroups=[group])
    lustre = client("fsx").create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[private["SubnetId"]],
        SecurityGroupIds=[group],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]["FileSystemId"]
    return Seeded(
        vpc, public["SubnetId"], private["SubnetId"], group, f"seed-{mark}-ed25519", f"seed-{mark}-rsa",
        bucket, f"s3://{bucket}/entry.sh", shared, lustre, private["AvailabilityZone"],
    )  # fmt: skip


def reservation(
    client: Client, instance_type: str, count: int, zone: str, *, block: bool, placement: str | None = None
) -> str:
    """A capacity reservation in the named zone: on demand, perhaps in the placement group of this ARN, or (`block`) a capacity block.
    Returns its id."""
    ec2 = client("ec2")
    if not block:
        made = ec2.create_capacity_reservation(
            InstanceType=instance_type,
            InstancePlatform="Linux/UNIX",
            AvailabilityZone=zone,
            InstanceCount=count,
            InstanceMatchCriteria="targeted",
            **({"PlacementGroupArn": placement} if placement else {}),
        )
    else:
        offers = ec2.describe_capacity_block_offerings(
            InstanceType=instance_type, InstanceCount=count, CapacityDurationHours=24
        )["CapacityBlockOfferings"]
        offer = next(entry for entry in offers if entry["AvailabilityZone"] == zone)
        made = ec2.purchase_capacity_block(
            CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
        )
    return str(made["CapacityReservation"]["CapacityReservationId"])


def reservation_group(client: Client, *reservations: str, pool: bool = True) -> str:
    """A resource group of reservations, in which instances can be started if it is a pool. Returns its ARN."""
    ec2, groups = client("ec2"), client("resource-groups")
    kinds: list[tuple[str, Any]] = [("AWS::EC2::CapacityReservationPool", None)] if pool else []
    allowed = [{"Name": "allowed-resource-types", "Values": ["AWS::EC2::CapacityReservation"]}]
    kinds.append(("AWS::ResourceGroups::Generic", allowed))
    made = groups.create_group(
        Name=f"reservations-{uuid.uuid4().hex[:8]}",
        Configuration=[{"Type": kind, **({"Parameters": given} if given else {})} for kind, given in kinds],
    )["Group"]
    found = [
        ec2.describe_capacity_reservations(CapacityReservationIds=[id])["CapacityReservations"][0]
        for id in reservations
    ]
    if found:
        groups.group_resources(Group=made["Name"], ResourceArns=[one["CapacityReservationArn"] for one in found])
    return str(made["GroupArn"])


def placement_group(client: Client, strategy: str = "cluster") -> str:
    """A placement group. Returns its name."""
    name = f"near-{uuid.uuid4().hex[:8]}"
    client("ec2").create_placement_group(GroupName=name, Strategy=strategy)
    return name
