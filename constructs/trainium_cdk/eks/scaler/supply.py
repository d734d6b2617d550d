"""Which nodes to start for waiting workloads, and which to remove. Pure; times are seconds since 1970.

Kueue decides who goes first. A workload for which it holds quota has a ProvisioningRequest, until it has finished or is evicted: so
the requests are the live workloads, and their nodes are neither given to another one nor removed. Nodes are counted from pods'
requests, not from the devices that new nodes report, so that a node with a slow device plug-in is not requested twice.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Resources = tuple[int, ...]
"""Amounts of the resources that are counted, the devices first."""
IN_ORDER = ("ACTIVE", "DEGRADED")
"""States of a node group in which its size may be changed: during an update, EKS ends nodes itself (containers-roadmap issue 2609)."""


@dataclass(frozen=True)
class Limits:
    """All in seconds.

    Attributes:
        idle: maximum time of a usable node without pods.
        capacity: maximum time for AWS to launch all instances of a workload.
        start: maximum time for an instance to join, and for its node to become usable.
        unusable: maximum time without pods of a node that was usable and no longer is: plug-ins restart in less.
    """

    idle: float = 600
    capacity: float = 600
    start: float = 1200
    unusable: float = 300


@dataclass(frozen=True)
class Node:
    """An instance of a node group.

    Attributes:
        name: of its Kubernetes node; empty until it has joined.
        state: `starting` until it is usable for the first time.
        free: resources that no pod uses.
        since: when it was last used; when it was launched, while it starts.
        busy: whether pods are on it that keep it.
        holders: requests of which pods are on it.
        leaving: whether it was cordoned to be removed.
        protected: from being chosen by AWS when the group's size is lowered; None if that cannot be set yet.
        network: the network nodes that it is below, from the highest layer on; empty until that is known.
    """

    instance: str
    name: str = ""
    state: Literal["starting", "usable", "unusable"] = "starting"
    free: Resources = ()
    since: float = 0
    busy: bool = False
    holders: frozenset[str] = frozenset()
    leaving: bool = False
    protected: bool | None = None
    network: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation that was made to start nodes.

    Attributes:
        available: number of instances that it could still launch.
    """

    id: str
    created: float
    available: int


@dataclass(frozen=True)
class Group:
    """A node group.

    Attributes:
        name: its name in the environment.
        resources: of one node.
        desired: number of instances requested from AWS.
        requested: number that was requested by `change` last; None if none.
        trouble: AWS's own words about missing instances.
        closed: why no node can start now, for example a capacity block that has not begun; empty if one can.
        reserved: whether its nodes come from a reservation or capacity block of the user's.
        atomic: whether all new instances are reserved before the size is set.
        reservations: those made for it.
    """

    name: str
    resources: Resources
    minimum: int
    maximum: int
    desired: int
    nodes: tuple[Node, ...] = ()
    requested: int | None = None
    status: str = "ACTIVE"
    trouble: str = ""
    closed: str = ""
    reserved: bool = False
    atomic: bool = False
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True)
class Request:
    """A ProvisioningRequest.

    Attributes:
        key: its namespace and name.
        groups: names of the node groups that its pods may use, the preferred one first.
        needs: of each pod that is not on a node.
        asked: since when it waits for nodes; 0 if it does not.
        provisioned: whether it has been told that its nodes are there.
        layer: all its nodes must be below one network node of this layer; 0 if that does not matter.
        network: that network node, if it has been told one.
        tried: whether nodes were started for it before, which were not below one network node.
    """

    key: str
    groups: tuple[str, ...]
    needs: tuple[Resources, ...]
    created: float = 0
    asked: float = 0
    provisioned: bool = False
    layer: int = 0
    network: str = ""
    tried: bool = False


@dataclass(frozen=True)
class Place:
    """The nodes that a request is given in a group.

    Attributes:
        nodes, there, usable: number of nodes, of those that exist, and of those that are usable.
        missing: number of pods that have no place.
        network: the network node that they are below, if that matters and is known.
    """

    group: str
    nodes: int
    there: int
    usable: int
    missing: int = 0
    network: str = ""


@dataclass(frozen=True)
class Change:
    """Changes of a group, in this order.

    Attributes:
        protect: instances to protect from scale-in.
        desired: the new size; None for no change.
        reserve: numbers of instances to reserve before the size is set, in the order of the requests that they are for: all at once, else
            those that AWS has. The size is set for what is reserved.
        cordon: names of nodes to remove in the next run.
        uncordon: names of nodes that were cordoned, and stay: pods are on them, a workload needs them, or the minimum was raised.
        terminate: instances to end, and whether each lowers the size by one (otherwise AWS replaces it).
        unprotect: instances that AWS may end again.
        cancel: ids of reservations that are no longer needed.
        requested: the new `Group.requested`.
    """

    protect: tuple[str, ...] = ()
    desired: int | None = None
    reserve: tuple[int, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    terminate: tuple[tuple[str, bool], ...] = ()
    unprotect: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    requested: int | None = None


@dataclass(frozen=True)
class Plan:
    """Changes by group, without groups that stay as they are, and places by the request's key, without requests that have no room.

    Attributes:
        scattered: keys of requests whose nodes are there, but not below one network node.
    """

    changes: Mapping[str, Change] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    scattered: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Answer:
    """What a request is told.

    Attributes:
        reason: one word, for programs.
        message: for people.
        asked: the new `Request.asked`.
        network: the new `Request.network`.
    """

    state: Literal["Waiting", "Provisioned", "Failed"]
    reason: str
    message: str
    asked: float = 0
    network: str = ""


def decide(groups: Iterable[Group], requests: Iterable[Request], now: float, limits: Limits) -> Plan:
    """The changes to make now. After them, another call changes nothing until something else has changed."""
    shelves = {group.name: _Shelf(group) for group in groups}
    places: dict[str, Place] = {}
    order = sorted(requests, key=lambda r: (r.created, r.key))
    has, waits = [r for r in order if r.provisioned], [r for r in order if not r.provisioned]
    # before any starts new nodes, those whose nodes are there: AWS may have the nodes of one, and not those of an older one
    for some, existing in ((has, False), (waits, True), (waits, False)):
        for request in some:
            shelf = (shelves[name] for name in request.groups if name in shelves and request.key not in places)
            if place := next(filter(None, (one.take(request, existing=existing) for one in shelf)), None):
                places[request.key] = place
    changes = {name: shelf.change(now, limits) for name, shelf in shelves.items()}
    kept = {name: change for name, change in changes.items() if change != Change(requested=change.requested)}
    return Plan(kept, places, frozenset[str]().union(*(shelf.scattered for shelf in shelves.values())))


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


class _Shelf:
    """A node group while requests take nodes: those that exist, then those that could still be started."""

    def __init__(self, group: Group) -> None:
        self.group = group
        stays = group.status in IN_ORDER  # in an update, EKS may have cordoned it too
        self._nodes = [
            n for n in group.nodes if n.state != "unusable" and (not n.leaving or (stays and n.state == "usable"))
        ]
        self._free = {n.instance: n.free for n in self._nodes}
        self._new: list[Resources] = []
        self._started: list[int] = []
        """How many of them each request starts."""
        self._kept: set[str] = set()
        self._expected = False
        """Whether pods are about to be placed on its nodes."""
        self.scattered: set[str] = set()

    def take(self, request: Request, *, existing: bool) -> Place | None:
        """Places for the request's pods. None if not all of them have room; but a request that was given its nodes before keeps what is
        there. Where they must be below one network node: the smallest that has room, else new nodes, which are started once.

        Args:
            existing: only nodes that exist, and only in a group whose new nodes are reserved, so that all of a request come or none.
        """
        if existing and not self.group.atomic:
            return None
        if not request.layer:
            return self._take(request, self._nodes, new=not existing)
        below: dict[str, list[Node]] = {}
        for node in self._nodes:
            for name in node.network[request.layer - 1 : request.layer]:
                below.setdefault(name, []).append(node)
        if request.provisioned:
            return self._take(request, below.get(request.network, []), network=request.network)
        open_ = [n for n in self._nodes if n.state == "starting" and not n.network]
        names = sorted(below, key=lambda name: (len(below[name]), name))
        for name, nodes in [*((n, below[n]) for n in names), *((n, below[n] + open_) for n in names), ("", open_)]:
            if place := self._take(request, nodes, network=name):
                return place
        if existing:
            return None
        if request.tried or (
            request.asked and self.places(request, [self._free[n.instance] for n in self._nodes])[1] == 0
        ):
            self.scattered.add(request.key)
            return None
        largest = below[names[-1]] if names else []
        return self._take(request, open_, new=True) or self._take(request, largest + open_, new=True)

    def _take(self, request: Request, nodes: list[Node], *, new: bool = False, network: str = "") -> Place | None:
        """Of these nodes: the request's own first, then the fullest, then the oldest.

        Args:
            new: whether nodes may be started.
        """
        group, open_ = self.group, self.group.status in IN_ORDER and not self.group.closed
        order = sorted(
            nodes,
            key=lambda n: (request.key not in n.holders, not n.busy, n.leaving, sum(n.free), n.since, n.instance),
        )
        free = [self._free[n.instance] for n in order]
        if new:
            more = max(0, group.maximum - len(group.nodes)) if open_ else len(self._new)
            free += self._new
            free += [group.resources] * (len(order) + more - len(free))
        taken, missing = self.places(request, free)
        if missing and not request.provisioned:
            return None
        there = [order[at] for at in taken if at < len(order)]
        usable = sum(n.state == "usable" for n in there)
        self._free |= {n.instance: left for n, left in zip(order, free, strict=False)}
        if new:
            before = len(self._new)
            self._new = free[len(order) : max(len(order) + before, max(taken, default=-1) + 1)]
            self._started.append(len(self._new) - before)
        self._kept |= {n.instance for n in there}
        self._expected |= bool(taken) and usable == len(taken)
        return Place(group.name, len(taken), len(there), usable, missing, network)

    @staticmethod
    def places(request: Request, free: list[Resources]) -> tuple[set[int], int]:
        """The indices of the nodes that its pods take, whose free resources are lowered, and the number of pods without room."""
        taken, missing = set[int](), 0
        for need in sorted(request.needs, reverse=True):
            at = next((i for i, left in enumerate(free) if all(a >= b for a, b in zip(left, need, strict=True))), None)
            if at is None:
                missing += 1
            else:
                free[at] = tuple(a - b for a, b in zip(free[at], need, strict=True))
                taken.add(at)
        return taken, missing

    def change(self, now: float, limits: Limits) -> Change:
        group, there = self.group, len(self.group.nodes)
        back = [n.name for n in group.nodes if n.leaving and (n.busy or n.instance in self._kept)]
        if group.status not in IN_ORDER:
            return Change(uncordon=tuple(back), requested=group.requested)
        wanted, desired, own = there + len(self._new), group.desired, group.requested == group.desired
        if wanted > desired:
            desired, own = wanted, True
        elif desired > there and own:  # for a request that no longer exists; a size that a person has set is kept
            desired = max(wanted, group.minimum)
        over = [n for n in group.nodes if not n.busy and n.instance not in self._kept and _expired(n, now, limits)]
        over.sort(key=lambda n: (not n.leaving, n.state == "usable", n.since, n.instance))
        spare, cordon, terminate = max(0, desired - group.minimum), [], []
        for node in over:
            if node.state == "usable" and spare == 0:
                if node.leaving:
                    back.append(node.name)
                continue
            if node.name and not node.leaving:
                cordon.append(node.name)
            else:
                terminate.append((node.instance, spare > 0))
            spare = max(0, spare - 1)
        removed = {n.instance for n in over}
        held = {
            n.instance
            for n in group.nodes
            if n.busy or n.instance in self._kept or (self._expected and n.state == "usable")
        } - removed
        size = desired - sum(lowers for _, lowers in terminate)
        changed = desired != group.desired
        return Change(
            protect=tuple(n.instance for n in group.nodes if n.protected is False and n.instance in held),
            desired=desired if changed else None,
            reserve=self._to_reserve(desired) if group.atomic else (),
            cordon=tuple(cordon),
            uncordon=tuple(back),
            terminate=tuple(terminate),
            unprotect=tuple(n.instance for n in group.nodes if n.protected and n.instance not in held),
            cancel=tuple(
                r.id
                for r in group.reservations
                if there >= desired or not r.available or now - r.created >= limits.capacity
            ),
            requested=size if own else None,
        )

    def _to_reserve(self, desired: int) -> tuple[int, ...]:
        reserved = sum(r.available for r in self.group.reservations)
        count, started = desired - self.group.desired - reserved, tuple(filter(None, self._started))
        if count <= 0:
            return ()
        # where some were requested before, it is not known for which request
        return started if count == sum(started) else (count,)


def _fits(request: Request, group: Group) -> bool:
    """Whether its pods have room in the group while nothing else is there."""
    return not _Shelf.places(request, [group.resources] * group.maximum)[1]


def _expired(node: Node, now: float, limits: Limits) -> bool:
    limit = {"starting": limits.start, "usable": limits.idle, "unusable": limits.unusable}[node.state]
    return node.leaving or now - node.since >= limit


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
