"""What the examples take as given, made in the local AWS for a while: a VPC, a cluster, a file system, a block, another account."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import boto3

from sandbox import LocalAws
from sandbox.local_aws import ACCOUNT

OTHER_ACCOUNT = "444455556666"
Context = dict[str, str]
"""Arguments for `cdk -c`."""


@contextmanager
def vpc(ec2: Any, *zone_ids: str) -> Iterator[tuple[str, list[str]]]:
    """A VPC with a subnet in each of these zones: its id and theirs."""
    found = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=found, EnableDnsHostnames={"Value": True})
    subnets = [
        ec2.create_subnet(VpcId=found, CidrBlock=f"10.1.{i}.0/24", AvailabilityZoneId=zone)["Subnet"]["SubnetId"]
        for i, zone in enumerate(zone_ids)
    ]
    yield found, subnets
    for subnet in subnets:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=found)


@contextmanager
def role(iam: Any, name: str, principal: dict[str, str]) -> Iterator[str]:
    trust = {
        "Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"},
    }
    yield iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    iam.delete_role(RoleName=name)


@contextmanager
def group(ec2: Any, name: str, within: str) -> Iterator[str]:
    found = ec2.create_security_group(GroupName=name, Description=name, VpcId=within)["GroupId"]
    yield found
    ec2.delete_security_group(GroupId=found)


@contextmanager
def cluster(aws: LocalAws) -> Iterator[Context]:
    """An EKS cluster that no CDK app made."""
    eks = aws.client("eks")
    with ExitStack() as stack:
        found, subnets = stack.enter_context(vpc(aws.client("ec2"), "use1-az6", "use1-az1"))
        arn = stack.enter_context(role(aws.client("iam"), "theirs", {"Service": "eks.amazonaws.com"}))
        eks.create_cluster(name="theirs", version="1.33", roleArn=arn, resourcesVpcConfig={"subnetIds": subnets})
        made = eks.describe_cluster(name="theirs")["cluster"]["resourcesVpcConfig"]["clusterSecurityGroupId"]
        yield {"vpc": found, "subnet": subnets[0], "cluster": "theirs", "group": made}
        eks.delete_cluster(name="theirs")


@contextmanager
def administered_cluster(aws: LocalAws) -> Iterator[Context]:
    """The cluster, with a role that administers it, and with both subnets."""
    with cluster(aws) as given, role(aws.client("iam"), "ClusterAdmin", {"AWS": ACCOUNT}) as admin:
        eks, ec2 = aws.client("eks"), aws.client("ec2")
        entry = {"clusterName": "theirs", "principalArn": admin}
        eks.create_access_entry(**entry)
        eks.associate_access_policy(
            **entry, policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy", accessScope={"type": "cluster"}
        )  # fmt: skip
        found = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [given["vpc"]]}])["Subnets"]
        subnets = {s["SubnetId"]: s["AvailabilityZone"] for s in found}
        yield {**given, "role": admin, "subnets": ",".join(subnets), "zones": ",".join(subnets.values())}


@contextmanager
def file_system(aws: LocalAws) -> Iterator[Context]:
    """An EFS file system in a VPC whose first private subnet is in a zone without trn1."""
    ec2, efs = aws.client("ec2"), aws.client("efs")
    with ExitStack() as stack:
        found, [public, *private] = stack.enter_context(vpc(ec2, "use1-az6", "use1-az1", "use1-az6"))
        allowed = stack.enter_context(group(ec2, "their-efs", found))
        home = efs.create_file_system(CreationToken="theirs", Encrypted=True)["FileSystemId"]
        targets = [
            efs.create_mount_target(FileSystemId=home, SubnetId=subnet, SecurityGroups=[allowed])["MountTargetId"]
            for subnet in private
        ]
        yield {"vpc": found, "public": public, "private": ",".join(private), "efs": home, "group": allowed}
        for target in targets:
            efs.delete_mount_target(MountTargetId=target)
        efs.delete_file_system(FileSystemId=home)


@contextmanager
def block(aws: LocalAws) -> Iterator[Context]:
    """A capacity block that was bought. It cannot be cancelled."""
    ec2 = aws.client("ec2", "us-east-2")
    request = {"InstanceType": "trn2.48xlarge", "InstanceCount": 4, "CapacityDurationHours": 24}
    offers = ec2.describe_capacity_block_offerings(**request)["CapacityBlockOfferings"]
    zones = {z["ZoneName"]: z["ZoneId"] for z in ec2.describe_availability_zones()["AvailabilityZones"]}
    offer = next(o for o in offers if zones[o["AvailabilityZone"]] == "use2-az3")
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    yield {"block": bought["CapacityReservation"]["CapacityReservationId"]}


@contextmanager
def other_account(aws: LocalAws) -> Iterator[Context]:
    """A VPC of another account, with the role by which CloudFormation accepts a peering."""

    def client(service: str) -> Any:
        make: Any = boto3.client
        return make(
            service,
            region_name=aws.region,
            endpoint_url=aws.endpoint,
            aws_access_key_id=OTHER_ACCOUNT,  # which the emulator takes for the account
            aws_secret_access_key="test",
        )

    ec2 = client("ec2")
    with ExitStack() as stack:
        found, _ = stack.enter_context(vpc(ec2, "use1-az1"))
        arn = stack.enter_context(role(client("iam"), "AcceptPeering", {"AWS": ACCOUNT}))
        yield {"peer": found, "role": arn}


GIVEN: dict[str, Callable[[LocalAws], AbstractContextManager[Context]]] = {
    "existing_cluster": cluster,
    "imported_cluster": administered_cluster,
    "slurm_existing_efs": file_system,
    "pcs_cluster": file_system,
    "capacity_block": block,
    "peering": other_account,
}
