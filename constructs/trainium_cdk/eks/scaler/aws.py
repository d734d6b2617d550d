"""Node groups in AWS: read, and changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from . import look
from .supply import Change, Group

Object = dict[str, Any]
_AT_ONCE = 50
"""Instances of one SetInstanceProtection, names of one DescribeAutoScalingGroups (Auto Scaling's API, 2026-11)."""
_REFUSED = (
    "Unsupported",
    "UnsupportedOperation",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "OperationNotPermitted",
)
"""Answers of EC2 about a type or zone in which it makes no reservations: nodes then start without one."""
_templates: dict[tuple[str, str], Object] = {}
"""Launch template versions, which never change."""


@dataclass(frozen=True)
class Found:
    """A node group in AWS.

    Attributes:
        described: by DescribeNodegroup.
        scaling: its Auto Scaling group.
        template: its launch template's data; empty if it has none.
        reservation: the capacity reservation or block that the template names.
    """

    described: Object
    scaling: Object
    template: Object
    reservation: Object | None


class NodeGroups:
    """The node groups of a cluster.

    Args:
        client: service name -> boto3 client.
    """

    def __init__(self, cluster: str, client: Any) -> None:
        self._cluster = cluster
        self._eks, self._scaling, self._ec2 = client("eks"), client("autoscaling"), client("ec2")

    def find(self, nodegroup: str) -> Found:
        """Raises LookupError while it is being created or deleted, ClientError if it does not exist."""
        described = self._eks.describe_nodegroup(clusterName=self._cluster, nodegroupName=nodegroup)["nodegroup"]
        names = [g["name"] for g in described.get("resources", {}).get("autoScalingGroups", [])]
        scaling = (
            self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
            if names
            else []
        )
        if not scaling:
            raise LookupError(f"node group {nodegroup} is {described['status']}")
        template = self._template(described.get("launchTemplate", {}))
        target = template.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        id, reservation = target.get("CapacityReservationId"), None
        if id:
            [reservation] = self._ec2.describe_capacity_reservations(CapacityReservationIds=[id])[
                "CapacityReservations"
            ]
        return Found(described, scaling[0], template, reservation)

    def keep_others_off(self, found: Found) -> None:
        """Remove the tags by which a Cluster Autoscaler discovers the group: EKS sets them on each, and their value does not matter."""
        name = found.scaling["AutoScalingGroupName"]
        keys = [t["Key"] for t in found.scaling.get("Tags", []) if t["Key"].startswith("k8s.io/cluster-autoscaler/")]
        if own := [key for key in keys if key.rpartition("/")[2] in ("enabled", self._cluster)]:
            tag = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
            self._scaling.delete_tags(Tags=[{**tag, "Key": key} for key in own])

    def launched(self, instances: Sequence[str]) -> dict[str, float]:
        """The launch time of each instance, except those that EC2 does not know yet."""
        filters = [{"Name": "instance-id", "Values": instances[at : at + 200]} for at in range(0, len(instances), 200)]
        pages = [p for f in filters for p in self._ec2.get_paginator("describe_instances").paginate(Filters=[f])]
        found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return {i["InstanceId"]: i["LaunchTime"].timestamp() for i in found}

    def reserved(self) -> dict[str, list[Object]]:
        """The active reservations that were made here, by the group's name."""
        filters = [
            {"Name": f"tag:{look.CLUSTER}", "Values": [self._cluster]},
            {"Name": "state", "Values": ["active", "pending"]},
        ]
        found: dict[str, list[Object]] = {}
        for page in self._ec2.get_paginator("describe_capacity_reservations").paginate(Filters=filters):
            for one in page["CapacityReservations"]:
                group = next((t["Value"] for t in one["Tags"] if t["Key"] == look.RESERVED_FOR), "")
                found.setdefault(group, []).append(one)
        return found

    def change(self, group: Group, found: Found, change: Change, now: float, minutes: float) -> str:
        """Apply a group's changes, without those of Kubernetes nodes. Returns why instances were not reserved; empty if all were.

        Args:
            minutes: until a reservation ends by itself, if it is not cancelled.
        """
        name, trouble = found.scaling["AutoScalingGroupName"], ""
        self._protect(name, change.protect, True)
        if change.reserve:
            trouble = self._reserve(group, found, change.reserve, now, minutes)
        if change.desired is not None and not trouble:
            self._scaling.set_desired_capacity(
                AutoScalingGroupName=name, DesiredCapacity=change.desired, HonorCooldown=False
            )
            if change.requested != group.requested and change.requested is not None:
                self._note(name, change.requested)
        for instance, lowers in change.terminate:
            self._scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=lowers
            )
        if change.terminate and change.requested is not None and not trouble:
            self._note(name, change.requested)
        self._protect(name, change.unprotect, False)
        for id in change.cancel:
            self._ec2.cancel_capacity_reservation(CapacityReservationId=id)
        return trouble

    def _reserve(self, group: Group, found: Found, count: int, now: float, minutes: float) -> str:
        """All instances or none: an Auto Scaling group would start, and charge, 11 of 16."""
        tags = {look.CLUSTER: self._cluster, look.RESERVED_FOR: group.name}
        placement = found.template.get("Placement", {}).get("GroupName")
        inside = {"PlacementGroupArn": self._placement_group(placement)} if placement else {}
        try:
            self._ec2.create_capacity_reservation(
                InstanceType=found.template.get("InstanceType") or found.described["instanceTypes"][0],
                InstancePlatform="Linux/UNIX",
                AvailabilityZone=found.scaling["AvailabilityZones"][0],
                InstanceCount=count,
                InstanceMatchCriteria="open",
                EndDateType="limited",
                EndDate=dt.datetime.fromtimestamp(now, dt.UTC) + dt.timedelta(minutes=minutes),
                ClientToken=f"{self._cluster}-{group.name}-{int(now)}"[-64:],
                TagSpecifications=[
                    {"ResourceType": "capacity-reservation", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
                ],
                **inside,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in _REFUSED:
                print(f"{group.name}: nodes start without a reservation: {error}")
                return ""
            return f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
        return ""

    def _placement_group(self, name: str) -> str:
        [found] = self._ec2.describe_placement_groups(GroupNames=[name])["PlacementGroups"]
        return str(found["GroupArn"])

    def _template(self, reference: Object) -> Object:
        if not reference:
            return {}
        key = (reference["id"], str(reference["version"]))
        if key not in _templates:
            [found] = self._ec2.describe_launch_template_versions(LaunchTemplateId=key[0], Versions=[key[1]])[
                "LaunchTemplateVersions"
            ]
            _templates[key] = found["LaunchTemplateData"]
        return _templates[key]

    def _protect(self, name: str, instances: Sequence[str], on: bool) -> None:
        for some in _parts(instances):
            self._scaling.set_instance_protection(AutoScalingGroupName=name, InstanceIds=some, ProtectedFromScaleIn=on)

    def _note(self, name: str, requested: int) -> None:
        tag = {"Key": look.REQUESTED, "Value": str(requested), "PropagateAtLaunch": False}
        self._scaling.create_or_update_tags(Tags=[{**tag, "ResourceId": name, "ResourceType": "auto-scaling-group"}])


def _parts(all_: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(all_), _AT_ONCE):
        yield list(all_[at : at + _AT_ONCE])
