"""Node groups, the requests for nodes, and what is decided and answered. Times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Resources = tuple[int, ...]
"""Amounts of the resources that are counted, the devices first."""
Devices = tuple[frozenset[tuple[int, str]], ...]
"""Devices that pods claim: the groups of connected ones that each is in, with their number."""
Room = tuple[Resources, Devices]
"""What is free on a node. `Devices` is empty where pods do not claim them, and until they are published: of these, all are free."""
RESIZABLE = ("ACTIVE", "DEGRADED")
"""States of a node group in which its size may be changed: during an update, EKS ends nodes itself (containers-roadmap issue 2609)."""


@dataclass(frozen=True)
class Limits:
    """All in seconds.

    Attributes:
        idle: maximum time of a usable node without pods.
        capacity: maximum time for AWS to launch all instances of a workload.
        start: maximum time for an instance to join, and for its node to become usable.
        unusable: maximum time without pods of a node that was usable and no longer is: plug-ins restart in less.
        without_pods: maximum time for which an admitted workload, whose nodes can be used, has no pod at all.
    """

    idle: float = 600
    capacity: float = 600
    start: float = 1200
    unusable: float = 300
    without_pods: float = 600


@dataclass(frozen=True)
class GroupNode:
    """An instance of a node group.

    Attributes:
        name: of its Kubernetes node; empty until it has joined.
        state: `starting` until it is usable for the first time.
        free: resources that no pod uses.
        since: when it was last used; when it was launched, while it starts.
        busy: whether pods are on it that keep it.
        holders: requests whose pods are on it.
        leaving: whether it was cordoned to be removed.
        broken: whether a device of it is reported broken, and the node still takes pods.
        devices: those that are free, where pods claim them.
        protected: from being chosen by AWS when the group's size is lowered; None if that cannot be set yet.
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
    broken: bool = False
    devices: Devices = ()


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
    nodes: tuple[GroupNode, ...] = ()
    requested: int | None = None
    status: str = "ACTIVE"
    trouble: str = ""
    closed: str = ""
    reserved: bool = False
    atomic: bool = False
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True)
class NodeRequest:
    """A ProvisioningRequest.

    Attributes:
        key: its namespace and name.
        groups: names of the node groups that its pods may use, the preferred one first.
        needs: of the pods that are not on a node: each size, with the number of pods.
        waiting_since: since when it waits for nodes; 0 if it does not.
        provisioned: whether the scaler has reported to it that its nodes exist.
        holds: whether a pod of it is on a node.
        without_pods_since: since when it had no pod at all, though it was admitted; 0 if it had one.
    """

    key: str
    groups: tuple[str, ...]
    needs: tuple[tuple[Resources, int], ...]
    created: float = 0
    waiting_since: float = 0
    provisioned: bool = False
    holds: bool = False
    without_pods_since: float = 0


@dataclass(frozen=True)
class GroupPlace:
    """The nodes that a request is given in a group.

    Attributes:
        nodes, there, usable: number of nodes, of those that exist, and of those that are usable.
        missing: number of pods that have no place.
    """

    group: str
    nodes: int
    there: int
    usable: int
    missing: int = 0


@dataclass(frozen=True)
class GroupChange:
    """Changes of a group, in this order.

    Attributes:
        protect: instances to protect from scale-in.
        desired: the new size; None for no change.
        reserve: numbers of instances to reserve before the size is set, in the order of the requests that they are for: all at once, else
            those that AWS has. The size is set for what is reserved.
        isolate: names of nodes with a broken device, which get no pod any more. They are not removed while pods are on them.
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
    isolate: tuple[str, ...] = ()
    cordon: tuple[str, ...] = ()
    uncordon: tuple[str, ...] = ()
    terminate: tuple[tuple[str, bool], ...] = ()
    unprotect: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    requested: int | None = None


@dataclass(frozen=True)
class ScalingPlan:
    """Changes by group, without groups that stay as they are, and places by the request's key, without requests that have no room."""

    changes: Mapping[str, GroupChange] = field(default_factory=dict)
    places: Mapping[str, GroupPlace] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Answer to a request for nodes.

    Attributes:
        reason: one word, for programs.
        message: for people.
        waiting_since: the new `NodeRequest.waiting_since`.
    """

    state: Literal["Waiting", "Provisioned", "Failed"]
    reason: str
    message: str
    waiting_since: float = 0
