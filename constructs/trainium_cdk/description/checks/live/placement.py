"""Existing placement groups that the environment names, and whether the reservations in them were made there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, Subject
from trainium_cdk.description.checks.live.reservations import its_placement_group
from trainium_cdk.description.settings.inventory import KnownNodes
from trainium_cdk.description.settings.reserved import PLACEMENT_GROUP_ID, is_group

STRATEGY = "cluster"
"""Limit of groups that keep instances close to each other (EC2 user guide, placement strategies, 2026-11)."""


@dataclass(frozen=True)
class Groups:
    """Placement groups and capacity reservations that EC2 has.

    Attributes:
        groups: by the name or id of the environment; None for one that does not exist.
        reservations: by id; those that do not exist are left out.
    """

    groups: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)


def _named(target: CheckTarget) -> list[tuple[KnownNodes, str]]:
    return [(f, group) for f in target.nodes if (group := f.queue.existing_group)]


def evaluate(target: CheckTarget, answer: Groups) -> Found:
    for nodes, name in _named(target):
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


def fetch(target: CheckTarget, aws: Aws) -> Groups:
    found = Groups()
    for nodes, name in _named(target):
        asked: dict[str, Any] = {"GroupIds" if PLACEMENT_GROUP_ID.fullmatch(name) else "GroupNames": [name]}
        found.groups[name] = aws.first("ec2:DescribePlacementGroups", "PlacementGroups", **asked)
        id = nodes.resource.reservation
        if id and not is_group(id):
            one = aws.first("ec2:DescribeCapacityReservations", "CapacityReservations", CapacityReservationIds=[id])
            found.reservations.update({id: one} if one else {})
    return found


CHECKS: tuple[Check[Any], ...] = (
    Check(
        "placement-groups",
        ("ec2:DescribePlacementGroups", "ec2:DescribeCapacityReservations"),
        fetch,
        evaluate,
        lambda t: bool(_named(t)),
    ),
)
