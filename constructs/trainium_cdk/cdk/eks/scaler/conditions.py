"""Conditions of requests for nodes: state, reason and message for their owner."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from .model import RESIZABLE, Answer, Group, Limits, NodeRequest, ScalingPlan
from .supply import places


def answer(
    request: NodeRequest,
    plan: ScalingPlan,
    groups: Mapping[str, Group],
    unknown: Mapping[str, str],
    now: float,
    limits: Limits,
) -> Answer:
    """Return the answer to a request whose nodes are not assigned yet.

    Args:
        unknown: why the groups that are not in `groups` could not be read.
    """
    if not request.needs:
        return Answer("Provisioned", "Provisioned", "its pods need no nodes")
    if not any(need[0] for need, _ in request.needs):
        return Answer(
            "Failed", "NoDevices", "its pods ask for 0 devices. Ask for 1 or more, or send it without a queue"
        )
    place, able = plan.places.get(request.key), [groups[name] for name in request.groups if name in groups]
    if request.groups and not able:
        return Answer("Waiting", "NodeGroupUnavailable", unknown[request.groups[0]])
    if not able:
        return Answer("Failed", "NoNodeGroup", "no node group has nodes with the labels and resources of these pods")
    if place and place.usable == place.nodes:
        text = f"{_nodes(place.nodes)} of {place.group} can be used"
        return Answer("Provisioned", "Provisioned", text, request.waiting_since)
    group = groups[place.group] if place else able[0]
    if group.status not in RESIZABLE:
        return Answer(
            "Waiting", "NodeGroupUpdating", f"node group {group.name} is {group.status}; nodes start when it is ACTIVE"
        )
    if group.closed:
        return Answer("Waiting", "ReservationClosed", group.closed)
    if place is None and len(able) == len(request.groups) and not any(_fits(request, one) for one in able):
        most = "; ".join(f"{g.name} has at most {_nodes(g.maximum)} with {g.resources[0]} devices each" for g in able)
        text = f"its pods ({sum(count for _, count in request.needs)}) have no room even among idle nodes: {most}"
        return Answer("Failed", "TooLarge", text)
    if place is None:
        return Answer("Waiting", "NoRoom", "waits for room: " + "; ".join(map(_room, able)))
    since, cause = request.waiting_since or now, f". AWS: {group.trouble}" if group.trouble else ""
    waited, what = now - since, f"{_nodes(place.nodes)} of {group.name}"
    idle = f"; idle nodes are removed after {_minutes(limits.idle)}" if place.there else ""
    # of a reservation that the user pays for anyway, nodes are requested until they come
    patient = group.reserved and not place.there
    if place.there < place.nodes and waited >= limits.capacity and not patient:
        late = f"{place.there} of {what} came within {_minutes(limits.capacity)}"
        return Answer("Failed", "NoCapacity", f"{late}{idle}{cause}")
    if place.there and waited >= limits.start:
        late = f"only {place.usable} of {what} could be used within {_minutes(limits.start)}"
        return Answer("Failed", "NodesUnusable", f"{late}{idle}{cause}")
    return Answer("Waiting", "WaitingForNodes", f"waits for {what}, since {clock(since)}{cause}", since)


def _fits(request: NodeRequest, group: Group) -> bool:
    """Return whether a request's pods fit into a group of maximum size without other pods."""
    return not places(request, [(group.resources, ())] * group.maximum)[1]


def _room(group: Group) -> str:
    busy, broken = sum(n.busy for n in group.nodes), sum(n.state == "unusable" and not n.busy for n in group.nodes)
    text = f"{group.name} has at most {_nodes(group.maximum)}; {busy} are in use"
    return f"{text} and {broken} unusable" if broken else text


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"


def clock(time: float) -> str:
    """A time for people."""
    return f"{dt.datetime.fromtimestamp(time, dt.UTC):%Y-%m-%d %H:%M} UTC"
