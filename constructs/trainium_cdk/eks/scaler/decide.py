"""Decisions of the scaler for gangs (pod groups): from the current state to changes. Pure; times are seconds since 1970.

Gangs are admitted as a whole, by priority and then by age, if their pods fit into the group's largest size in addition to running
pods. Nodes are started only for admitted gangs. They are counted from pods, not from the devices that nodes report, so that a node
with a slow device plug-in is not requested twice. A gang whose nodes do not start in time is released and tried again later. A
node that no pod has used for a while, and that no admitted gang is waiting for, is removed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

MOST_RETRIES = 8
"""After each attempt that started nodes without success, a gang waits twice as long, up to this multiple of the first pause."""


@dataclass(frozen=True)
class Limits:
    """All in seconds.

    Attributes:
        idle: maximum time of a node without pods.
        capacity: maximum time for AWS to launch all instances of a gang.
        start: maximum time from the request until all pods of the gang are placed, and until an instance has joined.
        retry: pause before a gang that was released is tried again.
    """

    idle: float = 600
    capacity: float = 600
    start: float = 1200
    retry: float = 1800


@dataclass(frozen=True)
class Node:
    """An instance of a node group.

    Attributes:
        instance: EC2 instance id.
        name: of its Kubernetes node; empty until it has joined.
        since: when it was last used, or joined, or (until it has joined) was launched.
        used: devices of the pods on it.
        busy: whether pods run on it, except those of DaemonSets.
        cordoned: whether it accepts no new pods.
        leaving: whether the scaler has begun to remove it.
    """

    instance: str
    name: str = ""
    since: float = 0
    used: int = 0
    busy: bool = False
    cordoned: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Group:
    """A node group.

    Attributes:
        name: its name in the environment.
        devices: of one node.
        desired: number of instances requested from AWS.
        requested: number that the scaler itself requested last; None if none.
        trouble: what AWS reports as the cause of missing instances.
    """

    name: str
    devices: int
    minimum: int
    maximum: int
    desired: int
    nodes: tuple[Node, ...] = ()
    requested: int | None = None
    trouble: str = ""


@dataclass(frozen=True)
class Attempt:
    """The state in a gang's PodGroup between two runs.

    Attributes:
        asked: when the scaler began to reserve or start nodes for it; 0 while it does not.
        tries: number of attempts that started nodes without success.
        retry: when it is tried again; 0 if it was not released.
        why: why it waits, for users.
    """

    asked: float = 0
    tries: int = 0
    retry: float = 0
    why: str = ""


@dataclass(frozen=True)
class Gang:
    """Pods that start together.

    Attributes:
        key: namespace and name of its PodGroup.
        groups: names of the node groups that its pods may use, the preferred one first.
        needs: devices of each pod that has no node yet.
        complete: whether all its pods have been created.
    """

    key: str
    groups: tuple[str, ...]
    needs: tuple[int, ...]
    created: float = 0
    priority: int = 0
    complete: bool = True
    attempt: Attempt = Attempt()


@dataclass(frozen=True)
class Change:
    """Changes of a group: first the desired size is set, then instances are terminated, which lowers it by one each.

    Attributes:
        desired: the new size; None for no change.
        remove: instance ids.
        requested: the new `Group.requested`, to store with the group.
    """

    desired: int | None = None
    remove: tuple[str, ...] = ()
    requested: int | None = None


@dataclass(frozen=True)
class Plan:
    """Changes by group, and new states of PodGroups by key; unchanged ones are left out."""

    groups: Mapping[str, Change] = field(default_factory=dict)
    attempts: Mapping[str, Attempt] = field(default_factory=dict)


def decide(groups: Sequence[Group], gangs: Iterable[Gang], now: float, limits: Limits) -> Plan:
    """The changes to make now. After them, another call changes something only if removed nodes have made room."""
    shelves = {group.name: _Shelf(group) for group in groups}
    attempts: dict[str, Attempt] = {}
    for gang in sorted(gangs, key=lambda g: (-g.priority, g.created, g.key)):
        after = _admit(gang, [shelves[name] for name in gang.groups if name in shelves], now, limits)
        if after != gang.attempt:
            attempts[gang.key] = after
    changes = {name: shelf.change(now, limits) for name, shelf in shelves.items()}
    return Plan({name: change for name, change in changes.items() if change != Change()}, attempts)


def _admit(gang: Gang, shelves: Sequence[_Shelf], now: float, limits: Limits) -> Attempt:
    """Reserve nodes for a gang in the first group with room for all of it, or return why it waits."""
    before = gang.attempt
    if not gang.needs:
        return Attempt()  # it runs: a later restart is a new attempt
    if not gang.complete or not shelves or now < before.retry:
        return before
    for shelf in shelves:
        if (held := shelf.fit(gang.needs)) is None:
            continue
        asked, wanted, there = before.asked or now, len(held.places), shelf.existing(held)
        if late := _too_late(shelf.group, wanted, there, now - asked, limits):
            return _released(before, late, shelf.group.trouble, there, now, limits)
        shelf.hold(held)
        return replace(
            before, asked=asked, retry=0, why=f"waits for {_nodes(wanted)} of {shelf.group.name}, since {_clock(asked)}"
        )
    room = "; ".join(shelf.room() for shelf in shelves)
    return replace(before, asked=0, retry=0, why=f"waits for room: {room}")


def _too_late(group: Group, wanted: int, there: int, waited: float, limits: Limits) -> str:
    """Why a gang that has waited so long is released; empty if it is not."""
    if there < wanted and waited >= limits.capacity:
        return f"{there} of {_nodes(wanted)} of {group.name} came within {_minutes(limits.capacity)}"
    if waited >= limits.start:
        return f"its pods were not placed on {group.name} within {_minutes(limits.start)}"
    return ""


def _released(before: Attempt, late: str, trouble: str, there: int, now: float, limits: Limits) -> Attempt:
    tries = before.tries + (there > 0)
    retry = now + limits.retry * min(2 ** max(0, tries - 1), MOST_RETRIES)
    idle = f"; idle nodes are removed after {_minutes(limits.idle)}" if there else ""
    cause = f". AWS: {trouble}" if trouble else ""
    return Attempt(tries=tries, retry=retry, why=f"{late}{idle}; next attempt at {_clock(retry)}{cause}")


@dataclass(frozen=True)
class _Held:
    """Free devices of a group's nodes after a gang is placed, and the places, by index."""

    free: tuple[int, ...]
    places: frozenset[int]


class _Shelf:
    """A node group while gangs are placed: its nodes that accept pods, then nodes that could still be started."""

    def __init__(self, group: Group) -> None:
        self.group = group
        usable = [n for n in group.nodes if not (n.cordoned or n.leaving)]
        # the fullest first, so that small pods share nodes; of idle nodes the oldest
        self._nodes = sorted(usable, key=lambda n: (not n.busy, -n.used, n.since, n.instance))
        more = max(0, group.maximum - len(group.nodes))
        self._held = _Held((*(group.devices - n.used for n in self._nodes), *[group.devices] * more), frozenset())

    def fit(self, needs: Sequence[int]) -> _Held | None:
        """Places for pods with these device counts; None if the group has no room for all."""
        free, places = list(self._held.free), set()
        for need in sorted(needs, reverse=True):
            at = next((i for i, left in enumerate(free) if left >= need), None)
            if at is None:
                return None
            free[at] -= need
            places.add(at)
        return _Held(tuple(free), frozenset(places))

    def hold(self, held: _Held) -> None:
        self._held = _Held(held.free, self._held.places | held.places)

    def existing(self, held: _Held) -> int:
        """Number of places on existing instances."""
        return sum(at < len(self._nodes) for at in held.places)

    def room(self) -> str:
        busy = sum(n.busy for n in self.group.nodes)
        return f"{self.group.name} has at most {_nodes(self.group.maximum)}, of which {busy} in use"

    def change(self, now: float, limits: Limits) -> Change:
        group, there = self.group, len(self.group.nodes)
        wanted = there + len(self._held.places) - self.existing(self._held)
        desired, own = group.desired, group.requested == group.desired
        if wanted > desired:
            desired, own = wanted, True
        elif desired > there and own:
            desired = max(
                wanted, group.minimum
            )  # the gang that it was for no longer exists; a manually requested size is kept
        kept = {self._nodes[at].instance for at in self._held.places if at < len(self._nodes)}
        over = [n for n in group.nodes if not n.busy and n.instance not in kept and _expired(n, now, limits)]
        over.sort(key=lambda n: (not n.leaving, n.since, n.instance))
        remove = tuple(n.instance for n in over[: max(0, desired - group.minimum)])
        if desired == group.desired and not remove:
            return Change()
        size = desired - len(remove)
        return Change(desired if desired != group.desired else None, remove, size if own else None)


def _expired(node: Node, now: float, limits: Limits) -> bool:
    return node.leaving or now - node.since >= (limits.idle if node.name else limits.start)


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes"


def _clock(at: float) -> str:
    return f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M} UTC"
