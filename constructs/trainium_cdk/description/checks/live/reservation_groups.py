"""Resource groups of capacity reservations that the environment names: what is in them, and whether nodes can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject, counted, join_words
from trainium_cdk.description.checks.live.reservations import BLOCK, COMING, its_placement_group
from trainium_cdk.description.settings.inventory import KnownNodes
from trainium_cdk.description.settings.reserved import is_group

POOL = "AWS::EC2::CapacityReservationPool"
"""The configuration of a group in which instances can be started (EC2 user guide, Capacity Reservation groups, 2026-11)."""
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


def _named(target: CheckTarget) -> list[tuple[KnownNodes, str]]:
    return [(f, r) for f in target.nodes if (r := f.resource.reservation) and is_group(r)]


def group_arns(target: CheckTarget) -> list[str]:
    """The ARNs of the groups that an environment names, each once."""
    return sorted({arn for _, arn in _named(target)})


def evaluate(target: CheckTarget, groups: dict[str, ReservationGroup | None]) -> Found:
    for nodes, arn in _named(target):
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


def fetch(target: CheckTarget, aws: Aws) -> dict[str, ReservationGroup | None]:
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


CHECKS: tuple[Check[Any], ...] = (Check("reservation-groups", _ACTIONS, fetch, evaluate, lambda t: bool(_named(t))),)
