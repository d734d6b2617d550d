"""Groups that the environment names: resource groups of capacity reservations, what is in them, and whether nodes can use it; and placement
groups, and whether the reservations in them were made there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.capacity import BLOCK, COMING, its_placement_group
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, counted, join_words
from trainium_cdk.description.settings.inventory import KnownNodes
from trainium_cdk.description.settings.reserved import PLACEMENT_GROUP_ID, is_group

POOL = "AWS::EC2::CapacityReservationPool"
"""The configuration of a group in which instances can be started (EC2 user guide, Capacity Reservation groups, 2026-11)."""
STRATEGY = "cluster"
"""Limit of placement groups that keep instances close to each other (EC2 user guide, placement strategies, 2026-11)."""
_ACTIONS = (
    "resource-groups:GetGroupConfiguration",
    "resource-groups:ListGroupResources",
    "ec2:DescribeCapacityReservations",
)


@dataclass(frozen=True)
class ReservationGroup:
    """A resource group.

    Attributes:
        pool: whether instances can be started in it.
        reservations: as EC2 describes them.
        absent: reservations that EC2 does not describe to this account.
    """

    pool: bool
    reservations: tuple[dict[str, Any], ...] = ()
    absent: tuple[str, ...] = ()


def _reservation_groups(target: CheckTarget) -> list[tuple[KnownNodes, str]]:
    return [(f, r) for f in target.nodes if (r := f.resource.reservation) and is_group(r)]


def group_arns(target: CheckTarget) -> list[str]:
    """The ARNs of the groups that an environment names, each once."""
    return sorted({arn for _, arn in _reservation_groups(target)})


def evaluate_reservation_groups(target: CheckTarget, groups: dict[str, ReservationGroup | None]) -> Found:
    for nodes, arn in _reservation_groups(target):
        name = arn.partition(":group/")[2]
        subject = target.about(f"reservation group {name}", *nodes.at, "reservation")
        group = groups.get(arn)
        if group is None:
            yield subject.error("none", "there is no such group", "correct the ARN: aws resource-groups list-groups")
        elif not group.pool:
            yield subject.error(
                "no pool of capacity reservations",
                "no instance can be started in this group, as in one that was made by tags or of a stack",
                f"create one (--configuration Type={POOL}), and add the reservations: aws resource-groups group-resources",
            )
        else:
            yield from _members(target, nodes, group, subject)


def _members(target: CheckTarget, nodes: KnownNodes, group: ReservationGroup, subject: Subject) -> Found:
    zone, wanted = str(target.inventory.zone_of(nodes.queue)), nodes.resource.max_nodes
    judged = [(r, _unusable(nodes, zone, r)) for r in group.reservations]
    usable = [r for r, why in judged if not why]
    others = [f"{r['CapacityReservationId']}: {why}" for r, why in judged if why]
    others += [f"{id}: it is not of this account, nor shared with it" for id in group.absent]
    active = [r for r in usable if r["State"] == "active"]
    total = sum(int(r["TotalInstanceCount"]) for r in usable)
    free = sum(int(r["AvailableInstanceCount"]) for r in active)
    if not usable:
        why = (
            f"none of its {counted(len(others), 'reservation')} is for {nodes.name}: {join_words(others)}"
            if others
            else "it is empty"
        )
        yield subject.error(
            "no reservation",
            f"{why}. EC2 starts the nodes on demand, if it has capacity",
            f"add a reservation of {nodes.kind.name} in {zone}: aws resource-groups group-resources",
        )
        return
    if others:
        yield subject.info(
            counted(len(others), "other reservation"), f"nodes of {nodes.name} cannot use {join_words(others)}"
        )
    if not active:
        yield subject.warning(
            usable[0]["State"],
            "no reservation of the group has started: EC2 starts nodes on demand until then",
            "deploy after the start",
        )
    elif total < wanted:
        yield subject.warning(
            counted(total, "instance"),
            f"{nodes.name} has up to {wanted:,} nodes: EC2 starts those beyond the reservations on demand, if it has capacity",
            f"write max_nodes: {total} to use reserved capacity only, or add a reservation to the group",
        )
    elif free < wanted:
        yield subject.warning(
            counted(free, "free instance"),
            f"other instances use the rest of the {total:,}, possibly this cluster's",
            "list them: aws ec2 describe-instances --filters Name=capacity-reservation-id,Values="
            + ",".join(r["CapacityReservationId"] for r in active),
        )
    yield subject.ok(
        counted(len(usable), "reservation"), f"{counted(total, 'instance')} of {nodes.kind.name} in {zone} in the group"
    )


def _unusable(nodes: KnownNodes, zone: str, reservation: dict[str, Any]) -> str:
    """Explain why nodes cannot use a reservation; empty if they can, now or later."""
    if reservation["State"] not in {"active", *COMING}:
        return f"it is {reservation['State']}"
    if reservation["InstanceType"] != nodes.kind.name:
        return f"it is for {reservation['InstanceType']}"
    if reservation.get("AvailabilityZoneId", zone) != zone:
        return f"it is in {reservation['AvailabilityZoneId']}"
    if (reservation.get("ReservationType") == BLOCK) != (nodes.queue.capacity_type == BLOCK):
        return f"capacity_type is {nodes.queue.capacity_type}"
    its, given = its_placement_group(reservation), nodes.queue.existing_group
    if its and given and not given.startswith("pg-") and its != given:
        return f"it is in the placement group {its}"
    return ""


def fetch_reservation_groups(target: CheckTarget, aws: Aws) -> dict[str, ReservationGroup | None]:
    return {arn: _group(arn, aws) for arn in group_arns(target)}


def _group(arn: str, aws: Aws) -> ReservationGroup | None:
    described = aws.find("resource-groups:GetGroupConfiguration", Group=arn)
    if described is None:
        return None
    kinds = {part.get("Type") for part in described.get("GroupConfiguration", {}).get("Configuration", [])}
    members = (aws.find("resource-groups:ListGroupResources", Group=arn) or {}).get("Resources", [])
    arns = [member["Identifier"]["ResourceArn"] for member in members]
    ids = sorted(one.rpartition("/")[2] for one in arns if ":capacity-reservation/" in one)
    # one by one: an id that is gone fails the whole request
    found = {
        id: aws.first("ec2:DescribeCapacityReservations", "CapacityReservations", CapacityReservationIds=[id])
        for id in ids
    }
    return ReservationGroup(
        POOL in kinds, tuple(one for one in found.values() if one), tuple(id for id, one in found.items() if not one)
    )


@dataclass(frozen=True)
class Groups:
    """Placement groups and capacity reservations that EC2 has.

    Attributes:
        groups: by the name or id of the environment; None for one that does not exist.
        reservations: by id; those that do not exist are left out.
    """

    groups: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)


def _placement_groups(target: CheckTarget) -> list[tuple[KnownNodes, str]]:
    return [(f, group) for f in target.nodes if (group := f.queue.existing_group)]


def evaluate_placement_groups(target: CheckTarget, answer: Groups) -> Found:
    for nodes, name in _placement_groups(target):
        subject = target.about(f"placement group {name}", *nodes.queue_at, "placement_group")
        group = answer.groups.get(name)
        if group is None:
            yield subject.error(
                "none",
                f"it does not exist in {target.env.region}, in this account or shared with it",
                "correct the name (aws ec2 describe-placement-groups), or write placement_group: auto",
            )
        elif group.get("Strategy") != STRATEGY:
            yield subject.error(
                group.get("Strategy"),
                "it does not keep nodes close to each other",
                "use a group with the strategy cluster, or write placement_group: auto",
            )
        else:
            yield from _with_reservation(nodes, name, group, answer, subject)


def _with_reservation(nodes: KnownNodes, name: str, group: dict[str, Any], answer: Groups, subject: Subject) -> Found:
    reservation = answer.reservations.get(str(nodes.resource.reservation))
    if reservation is None:
        yield subject.ok(group.get("State", "available"), f"{nodes.name} is in it")
        return
    id, its = reservation["CapacityReservationId"], its_placement_group(reservation)
    if its == str(group.get("GroupName")):
        yield subject.ok(group.get("State", "available"), f"the reservation {id} was made in it")
    elif its:
        yield subject.error(
            name,
            f"the reservation {id} was made in another placement group, {its}: no node starts",
            f"write placement_group: {its}, or use a reservation that was made in {name}",
        )
    else:
        yield subject.warning(
            name,
            f"the reservation {id} was made in no placement group: a node whose reserved place is outside the group does not start "
            "(InsufficientInstanceCapacity)",
            f"write placement_group: auto, or use a reservation that was made in {name}",
        )


def fetch_placement_groups(target: CheckTarget, aws: Aws) -> Groups:
    found = Groups()
    for nodes, name in _placement_groups(target):
        asked: dict[str, Any] = {"GroupIds" if PLACEMENT_GROUP_ID.fullmatch(name) else "GroupNames": [name]}
        found.groups[name] = aws.first("ec2:DescribePlacementGroups", "PlacementGroups", **asked)
        id = nodes.resource.reservation
        if id and not is_group(id):
            one = aws.first("ec2:DescribeCapacityReservations", "CapacityReservations", CapacityReservationIds=[id])
            found.reservations.update({id: one} if one else {})
    return found


CHECKS: tuple[Check[Any], ...] = (
    Check(
        "reservation-groups",
        _ACTIONS,
        fetch_reservation_groups,
        evaluate_reservation_groups,
        lambda t: bool(_reservation_groups(t)),
    ),
    Check(
        "placement-groups",
        ("ec2:DescribePlacementGroups", "ec2:DescribeCapacityReservations"),
        fetch_placement_groups,
        evaluate_placement_groups,
        lambda t: bool(_placement_groups(t)),
    ),
)
