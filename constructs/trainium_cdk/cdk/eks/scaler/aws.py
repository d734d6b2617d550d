"""Node groups in AWS: read, and changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from . import observe
from .labels import CLUSTER, RESERVED_FOR
from .model import Group, GroupChange
from .observe import DescribedGroup

Object = dict[str, Any]
_AT_ONCE = 50
"""Instances of one SetInstanceProtection (Auto Scaling's API, 2026-11)."""
_ALONE = 5
"""Workloads for which nodes are reserved alone, in a run in which AWS does not have all Workloads' nodes."""
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


class NodeGroups:
    """The node groups of a cluster.

    Args:
        client: service name -> boto3 client.
    """

    def __init__(self, cluster: str, client: Any) -> None:
        self._cluster = cluster
        self._eks, self._scaling, self._ec2 = client("eks"), client("autoscaling"), client("ec2")

    def find(self, group: observe.GroupSettings) -> DescribedGroup:
        """Raises LookupError while it is being created or deleted, ClientError if it does not exist."""
        described = self._eks.describe_nodegroup(clusterName=self._cluster, nodegroupName=group.nodegroup)["nodegroup"]
        names = [g["name"] for g in described.get("resources", {}).get("autoScalingGroups", [])]
        scaling = names and self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
        if not scaling:
            raise LookupError(f"node group {group.nodegroup} is {described['status']}")
        template = self._template(described.get("launchTemplate", {}))
        target = template.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        reservation = None
        if id := target.get("CapacityReservationId"):
            listed = self._ec2.describe_capacity_reservations(CapacityReservationIds=[id])
            [reservation] = listed["CapacityReservations"]
        return DescribedGroup(group, described, scaling[0], template, reservation)

    def keep_others_off(self, details: DescribedGroup) -> None:
        """Remove the tags by which a Cluster Autoscaler discovers the group: EKS sets them on each, and their value does not matter."""
        name = details.scaling["AutoScalingGroupName"]
        keys = [t["Key"] for t in details.scaling.get("Tags", []) if t["Key"].startswith("k8s.io/cluster-autoscaler/")]
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
            {"Name": f"tag:{CLUSTER}", "Values": [self._cluster]},
            {"Name": "state", "Values": ["active", "pending"]},
        ]
        found: dict[str, list[Object]] = {}
        for page in self._ec2.get_paginator("describe_capacity_reservations").paginate(Filters=filters):
            for one in page["CapacityReservations"]:
                group = next((t["Value"] for t in one["Tags"] if t["Key"] == RESERVED_FOR), "")
                found.setdefault(group, []).append(one)
        return found

    def change(self, group: Group, details: DescribedGroup, change: GroupChange, now: float, ends: float) -> str:
        """Apply a group's changes, without the changes of Kubernetes nodes. Returns why not all instances were reserved; empty if all were.

        Args:
            ends: when a reservation ends automatically, if it is not cancelled.
        """
        name, trouble = details.scaling["AutoScalingGroupName"], ""
        self._protect(name, change.protect, True)
        if change.reserve:
            missing, trouble = self._reserve_all(group, details, change.reserve, now, ends)
            if missing and change.desired is not None and change.requested is not None:
                desired, requested = change.desired - missing, change.requested - missing
                change = replace(change, desired=desired if desired > group.desired else None, requested=requested)
        if change.desired is not None:
            self._scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=change.desired)
            self._note(name, group, change)
        for instance, lowers in change.terminate:
            self._scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=lowers
            )
        if (
            change.terminate and not trouble
        ):  # afterwards: if one cannot be ended, the size is still the one that was requested
            self._note(name, group, change)
        self._protect(name, change.unprotect, False)
        for id in change.cancel:
            self._ec2.cancel_capacity_reservation(CapacityReservationId=id)
        return trouble

    def _reserve_all(
        self, group: Group, details: DescribedGroup, counts: Sequence[int], now: float, ends: float
    ) -> tuple[int, str]:
        """All together, else each alone, so that a small workload does not wait for the nodes of a large one. Returns how many were not
        reserved, and why."""
        token = f"{details.scaling['AutoScalingGroupName']}-{int(now)}"  # EKS's own name, which ends with a UUID
        if not (trouble := self._reserve(group, details, sum(counts), token, ends)):
            return 0, ""
        refused, missing = sum(counts), sum(counts)
        for number, count in enumerate(counts[:_ALONE]):
            if count >= refused:
                continue
            if self._reserve(group, details, count, f"{token}-{number}", ends):
                refused = count
            else:
                missing -= count
        return missing, trouble

    def _reserve(self, group: Group, details: DescribedGroup, count: int, token: str, ends: float) -> str:
        """All instances or none: an Auto Scaling group would start, and charge, 11 of 16. Returns why not."""
        tags = {CLUSTER: self._cluster, RESERVED_FOR: group.name}
        inside, placement = {}, details.template.get("Placement", {})
        if by := next((key for key in ("GroupName", "GroupId") if placement.get(key)), None):
            [described] = self._ec2.describe_placement_groups(**{f"{by}s": [placement[by]]})["PlacementGroups"]
            inside = {"PlacementGroupArn": described["GroupArn"]}
        try:
            self._ec2.create_capacity_reservation(
                InstanceType=details.template.get("InstanceType") or details.described["instanceTypes"][0],
                InstancePlatform="Linux/UNIX",
                AvailabilityZone=details.scaling["AvailabilityZones"][0],
                InstanceCount=count,
                InstanceMatchCriteria="open",
                EndDateType="limited",
                EndDate=dt.datetime.fromtimestamp(ends, dt.UTC),
                ClientToken=token[-64:],
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

    def _template(self, reference: Object) -> Object:
        if not reference:
            return {}
        key = (reference["id"], str(reference["version"]))
        if key not in _templates:
            found = self._ec2.describe_launch_template_versions(LaunchTemplateId=key[0], Versions=[key[1]])
            _templates[key] = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return _templates[key]

    def _protect(self, name: str, instances: Sequence[str], on: bool) -> None:
        for at in range(0, len(instances), _AT_ONCE):
            some = list(instances[at : at + _AT_ONCE])
            self._scaling.set_instance_protection(AutoScalingGroupName=name, InstanceIds=some, ProtectedFromScaleIn=on)

    def _note(self, name: str, group: Group, change: GroupChange) -> None:
        if change.requested in (None, group.requested):
            return
        tag = {"Key": observe.REQUESTED, "Value": str(change.requested), "PropagateAtLaunch": False}
        self._scaling.create_or_update_tags(Tags=[{**tag, "ResourceId": name, "ResourceType": "auto-scaling-group"}])
