"""The local Auto Scaling groups of EKS node groups behave as AWS's where it hurts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox import LocalAws

pytestmark = pytest.mark.sweep

KIND = "trn1.32xlarge"


@pytest.fixture
def group(local_aws: LocalAws) -> Iterator[str]:
    """The Auto Scaling group of a node group with four nodes."""
    eks, ec2 = local_aws.client("eks"), local_aws.client("ec2")
    subnets = [s["SubnetId"] for s in ec2.describe_subnets()["Subnets"][:2]]
    eks.create_cluster(
        name="sizes", roleArn="arn:aws:iam::000000000000:role/r", resourcesVpcConfig={"subnetIds": subnets}
    )
    eks.create_nodegroup(
        clusterName="sizes", nodegroupName="n", subnets=subnets[:1], nodeRole="arn:aws:iam::000000000000:role/r",
        scalingConfig={"minSize": 0, "maxSize": 8, "desiredSize": 4}, instanceTypes=[KIND],
    )  # fmt: skip
    made = eks.describe_nodegroup(clusterName="sizes", nodegroupName="n")["nodegroup"]
    yield made["resources"]["autoScalingGroups"][0]["name"]
    eks.delete_nodegroup(clusterName="sizes", nodegroupName="n")
    eks.delete_cluster(name="sizes")


def instances(local_aws: LocalAws, group: str) -> list[str]:
    [found] = local_aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    return [i["InstanceId"] for i in found["Instances"]]


def test_a_smaller_size_ends_the_oldest_that_are_not_protected(local_aws: LocalAws, group: str) -> None:
    scaling = local_aws.client("autoscaling")
    first, second, third, fourth = instances(local_aws, group)

    def protect(*ids: str, on: bool) -> None:
        scaling.set_instance_protection(AutoScalingGroupName=group, InstanceIds=ids, ProtectedFromScaleIn=on)

    protect(first, on=True)
    scaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    assert instances(local_aws, group) == [first, fourth]
    protect(fourth, on=True)
    local_aws.client("eks").update_nodegroup_config(
        clusterName="sizes", nodegroupName="n", scalingConfig={"minSize": 0, "maxSize": 8, "desiredSize": 1}
    )
    assert instances(local_aws, group) == [first, fourth], "all are protected: none ends"
    protect(first, on=False)
    assert instances(local_aws, group) == [fourth]
    scaling.terminate_instance_in_auto_scaling_group(InstanceId=fourth, ShouldDecrementDesiredCapacity=True)
    assert instances(local_aws, group) == [], "protection is no obstacle to ending one instance by its id"
    with pytest.raises(ClientError, match="not part of the group or not in InService"):
        protect(second, on=True)
    with pytest.raises(ClientError, match="at most 50"):
        protect(*[third] * 51, on=True)


def test_a_group_that_is_being_changed_takes_no_other_change(local_aws: LocalAws, group: str) -> None:
    eks, fields = local_aws.client("eks"), local_aws.directory / "nodegroups.json"
    fields.write_text('{"n": {"status": "UPDATING"}}')
    try:
        with pytest.raises(eks.exceptions.ResourceInUseException, match="not in Active State"):
            eks.update_nodegroup_config(clusterName="sizes", nodegroupName="n", scalingConfig={"desiredSize": 1})
    finally:
        fields.unlink()
    assert len(instances(local_aws, group)) == 4


def test_a_reservation_is_made_as_a_whole_or_not_at_all(local_aws: LocalAws, group: str) -> None:
    ec2, scaling = local_aws.client("ec2"), local_aws.client("autoscaling")
    [found] = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    capacity, refused = local_aws.directory / "capacity.json", local_aws.directory / "unreservable.json"

    def reserve(count: int, kind: str = KIND, **more: Any) -> dict[str, Any]:
        tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "for", "Value": "n"}]}]
        return dict(ec2.create_capacity_reservation(
            InstanceType=kind, InstancePlatform="Linux/UNIX", AvailabilityZone=found["AvailabilityZones"][0], InstanceCount=count,
            TagSpecifications=tags, **more,
        )["CapacityReservation"])  # fmt: skip

    try:
        capacity.write_text(f'{{"{KIND}": 6}}')
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            reserve(3)
        with pytest.raises(ClientError, match="EndDate is given if, and only if"):
            reserve(1, EndDateType="limited")
        made = reserve(2, EndDateType="limited", EndDate=datetime.now(UTC) + timedelta(minutes=10))
        with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
            reserve(1)
        scaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=6)
        assert len(instances(local_aws, group)) == 6, "they are launched into what is reserved"
        [left] = ec2.describe_capacity_reservations(Filters=[{"Name": "tag:for", "Values": ["n"]}])[
            "CapacityReservations"
        ]
        assert (left["CapacityReservationId"], left["AvailableInstanceCount"]) == (made["CapacityReservationId"], 0)
        ec2.cancel_capacity_reservation(CapacityReservationId=made["CapacityReservationId"])
        refused.write_text(f'["{KIND}"]')
        with pytest.raises(ClientError, match="Unsupported"):
            reserve(1)
    finally:
        capacity.unlink()
        refused.unlink(missing_ok=True)
