"""Finding and deleting leftovers of a stack: resources that Kubernetes, ParallelCluster and Lambda created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainium_cdk._aws import code_and_message
from trainium_cdk.client.operations.teardown.owner import Owner
from trainium_cdk.client.operations.teardown.survey import Client

Found = Iterator[tuple[str, str, bool]]
Find = Callable[[Client, Owner], Found]
"""The ids of what belongs to a stack, each with the reason, and whether AWS vouches for it."""
Delete = Callable[[Client, str], object]


@dataclass(frozen=True)
class Leftover:
    """Something that belongs to the stack but is not one of its resources.

    Attributes:
        kind: for example `network interface`.
        why: why it belongs to the stack.
        sure: AWS vouches for it. Else anybody may have tagged it so: it is not deleted.
    """

    kind: str
    id: str
    why: str
    sure: bool = True


@dataclass(frozen=True)
class Kind:
    """A kind of leftover: how to find and how to delete it."""

    name: str
    find: Find
    delete: Delete
    before: bool = False
    """True if it may block the stack's deletion."""


def find(client: Client, owner: Owner, *, blocking: bool = False) -> Iterator[Leftover]:
    """All leftovers, in the order in which they can be deleted. Managed and kept resources are never among them.

    blocking: only what may block the stack's deletion.
    """
    spared = owner.managed | owner.kept if blocking else owner.kept
    for kind in KINDS:
        if blocking and not kind.before:
            continue
        for id, why, sure in kind.find(client, owner):
            if id not in spared:
                yield Leftover(kind.name, id, why, sure)


def delete(client: Client, left: Leftover) -> None:
    """Delete one of them.

    Raises:
        botocore.exceptions.ClientError: AWS rejected a request.
    """
    next(kind for kind in KINDS if kind.name == left.kind).delete(client, left.id)


def _tags(item: dict[str, Any]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in item.get("Tags") or item.get("TagSet") or []}


def _vouched(owner: Owner, item: dict[str, Any], tags: dict[str, str] | None = None) -> bool:
    vpc = item.get("VpcId") or item.get("VPCId") or ""
    return owner.vouched(_tags(item) if tags is None else tags, vpc, item.get("PlacementGroupArn", ""))


def _items(client: Client, service: str, operation: str, key: str) -> Iterator[dict[str, Any]]:
    """The items of all pages of a request."""
    for page in client(service).get_paginator(operation).paginate():
        yield from page.get(key, [])


def _instances(client: Client, owner: Owner) -> Found:
    for reservation in _items(client, "ec2", "describe_instances", "Reservations"):
        for instance in reservation["Instances"]:
            alive = instance["State"]["Name"] in ("pending", "running", "stopping", "stopped")
            if alive and (why := owner.why(_tags(instance))):
                yield instance["InstanceId"], why, _vouched(owner, instance)


def _balancing(service: str, operation: str, items: str, key: str, argument: str) -> Find:
    """Load balancers and their target groups: their tags are in their own request."""

    def find(client: Client, owner: Owner) -> Found:
        from botocore.exceptions import ClientError

        for item in _items(client, service, operation, items):
            try:
                described = client(service).describe_tags(**{argument: [item[key]]})["TagDescriptions"]
            except ClientError as e:
                if "NotFound" in code_and_message(e)[0]:  # someone has deleted it meanwhile
                    continue
                raise
            tags = _tags(described[0]) if described else {}
            if why := owner.why(tags):
                yield item[key], why, _vouched(owner, item, tags)

    return find


def _interfaces(client: Client, owner: Owner) -> Found:
    """Only unused ones."""
    for interface in _items(client, "ec2", "describe_network_interfaces", "NetworkInterfaces"):
        vpc, description = interface.get("VpcId", ""), interface.get("Description") or ""
        why = owner.why_interface(_tags(interface), vpc, description)
        if why and interface.get("Status") == "available":
            yield interface["NetworkInterfaceId"], why, _vouched(owner, interface)


def _tagged(
    operation: str,
    items: str,
    key: str,
    wanted: Callable[[dict[str, Any]], bool],
    why_ours: Callable[[Owner, dict[str, str]], str] = Owner.why,
) -> Find:
    """Return a function that finds wanted EC2 resources by their tags."""

    def find(client: Client, owner: Owner) -> Found:
        for item in _items(client, "ec2", operation, items):
            if wanted(item) and (why := why_ours(owner, _tags(item))):
                yield item[key], why, _vouched(owner, item)

    return find


def _delete_group(client: Client, id: str) -> None:
    """First the rules that refer to it, its own and others', as they block its deletion."""
    ec2 = client("ec2")
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        for key, revoke in (
            ("IpPermissions", ec2.revoke_security_group_ingress),
            ("IpPermissionsEgress", ec2.revoke_security_group_egress),
        ):
            rules = [
                {**rule, "UserIdGroupPairs": pairs, "IpRanges": [], "Ipv6Ranges": [], "PrefixListIds": []}
                for rule in group.get(key, [])
                if (pairs := [p for p in rule.get("UserIdGroupPairs", []) if p.get("GroupId") == id])
            ]
            if rules:
                revoke(GroupId=group["GroupId"], IpPermissions=rules)
    ec2.delete_security_group(GroupId=id)


def _logs(client: Client, owner: Owner) -> Found:
    for group in _items(client, "logs", "describe_log_groups", "logGroups"):
        if why := owner.why_log(group["logGroupName"]):
            yield group["logGroupName"], why, True


_groups = _tagged("describe_security_groups", "SecurityGroups", "GroupId", lambda g: g["GroupName"] != "default")
# without an instance
_volumes = _tagged("describe_volumes", "Volumes", "VolumeId", lambda v: v.get("State") == "available")
# that the scaler has made to start nodes: unused, they are charged, and their placement group cannot be deleted
_reservations = _tagged(
    "describe_capacity_reservations",
    "CapacityReservations",
    "CapacityReservationId",
    lambda r: r["State"] == "active",
    Owner.why_reservation,
)
_balancers = _balancing("elbv2", "describe_load_balancers", "LoadBalancers", "LoadBalancerArn", "ResourceArns")
_target_groups = _balancing("elbv2", "describe_target_groups", "TargetGroups", "TargetGroupArn", "ResourceArns")
_classic_balancers = _balancing(
    "elb", "describe_load_balancers", "LoadBalancerDescriptions", "LoadBalancerName", "LoadBalancerNames"
)


def _by(service: str, operation: str, argument: str, *, several: bool = False) -> Delete:
    """Deletes by one request, whose argument is the id, or a list of ids."""
    return lambda client, id: getattr(client(service), operation)(**{argument: [id] if several else id})


KINDS: tuple[Kind, ...] = (
    Kind("instance", _instances, _by("ec2", "terminate_instances", "InstanceIds", several=True)),
    Kind("load balancer", _balancers, _by("elbv2", "delete_load_balancer", "LoadBalancerArn"), before=True),
    Kind(
        "classic load balancer", _classic_balancers, _by("elb", "delete_load_balancer", "LoadBalancerName"), before=True
    ),
    Kind("target group", _target_groups, _by("elbv2", "delete_target_group", "TargetGroupArn"), before=True),
    Kind("network interface", _interfaces, _by("ec2", "delete_network_interface", "NetworkInterfaceId"), before=True),
    Kind("security group", _groups, _delete_group, before=True),
    Kind(
        "capacity reservation",
        _reservations,
        _by("ec2", "cancel_capacity_reservation", "CapacityReservationId"),
        before=True,
    ),
    Kind("volume", _volumes, _by("ec2", "delete_volume", "VolumeId")),
    Kind("log group", _logs, _by("logs", "delete_log_group", "logGroupName")),
)
"""In the order of deletion: each may block the ones after it."""
