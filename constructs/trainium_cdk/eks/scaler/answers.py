"""What to tell the owner of a request for nodes."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from .model import IN_ORDER, Answer, Group, Limits, Plan, Request
from .supply import places


def answer(
    request: Request, plan: Plan, groups: Mapping[str, Group], unknown: Mapping[str, str], now: float, limits: Limits
) -> Answer:
    """What to tell a request whose nodes it has not been given yet, or which cannot have all of them any more.

    Args:
        unknown: why the groups that are not in `groups` could not be read.
    """
    place, able = plan.places.get(request.key), [groups[name] for name in request.groups if name in groups]
    if request.groups and not able:
        return Answer("Waiting", "NodeGroupUnavailable", unknown[request.groups[0]])
    if not able:
        return Answer("Failed", "NoNodeGroup", "no node group has nodes with the labels and resources of these pods")
    if request.provisioned:
        room = f"{place.missing if place else len(request.needs)} of its pods have no room below {request.network}"
        return Answer("Failed", "NetworkNodeFull", f"{room}: its nodes are chosen again", network=request.network)
    if place and place.usable == place.nodes:
        text = f"{_nodes(place.nodes)} of {place.group} can be used"
        return Answer("Provisioned", "Provisioned", text, request.asked, place.network)
    group = groups[place.group] if place else able[0]
    if group.status not in IN_ORDER:
        return Answer(
            "Waiting", "NodeGroupUpdating", f"node group {group.name} is {group.status}; nodes start when it is ACTIVE"
        )
    if group.closed:
        return Answer("Waiting", "ReservationClosed", group.closed)
    if place is None and len(able) == len(request.groups) and not any(_fits(request, one) for one in able):
        most = "; ".join(f"{g.name} has at most {_nodes(g.maximum)} with {g.resources[0]} devices each" for g in able)
        text = f"its pods ({len(request.needs)}) have no room even among idle nodes: {most}"
        return Answer("Failed", "TooLarge", text)
    if place is None and (request.tried or request.key in plan.scattered):
        # while others work, their end may make room; else it gives its turn to them
        state: Literal["Waiting", "Failed"] = "Waiting" if any(n.busy for n in group.nodes) else "Failed"
        return Answer(state, "NoNetworkNode", _scattered(request, group), request.asked)
    if place is None:
        return Answer("Waiting", "NoRoom", "waits for room: " + "; ".join(map(_room, able)))
    asked, cause = request.asked or now, f". AWS: {group.trouble}" if group.trouble else ""
    waited, what = now - asked, f"{_nodes(place.nodes)} of {group.name}"
    idle = f"; idle nodes are removed after {_minutes(limits.idle)}" if place.there else ""
    # of a reservation that the user pays for anyway, nodes are requested until they come
    patient = group.reserved and not place.there
    if place.there < place.nodes and waited >= limits.capacity and not patient:
        late = f"{place.there} of {what} came within {_minutes(limits.capacity)}"
        return Answer("Failed", "NoCapacity", f"{late}{idle}{cause}")
    if place.there and waited >= limits.start:
        late = f"only {place.usable} of {what} could be used within {_minutes(limits.start)}"
        return Answer("Failed", "NodesUnusable", f"{late}{idle}{cause}")
    return Answer("Waiting", "WaitingForNodes", f"waits for {what}, since {clock(asked)}{cause}", asked)


def _fits(request: Request, group: Group) -> bool:
    """Whether its pods have room in the group while nothing else is there."""
    return not places(request, [group.resources] * group.maximum)[1]


def _room(group: Group) -> str:
    busy, broken = sum(n.busy for n in group.nodes), sum(n.state == "unusable" and not n.busy for n in group.nodes)
    text = f"{group.name} has at most {_nodes(group.maximum)}, of which {busy} in use"
    return f"{text} and {broken} unusable" if broken else text


def _scattered(request: Request, group: Group) -> str:
    """Why its pods are below no network node."""
    names = Counter(n.network[request.layer - 1] for n in group.nodes if len(n.network) >= request.layer)
    has = ", ".join(f"{name} has {count}" for name, count in names.most_common(3)) or "no node has one"
    return (
        f"no network node of layer {request.layer} has room for its {len(request.needs)} pods ({has}), and no nodes are started for it "
        "again: submit it again, or with --topology preferred"
    )


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"


def clock(at: float) -> str:
    """A time for people."""
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M} UTC"
