"""Decisions of nodes to start for waiting workloads, and of nodes to remove. Pure; times are seconds since 1970.

Kueue decides who goes first. A workload for which it holds quota has a ProvisioningRequest, until it has finished or is evicted: so
the requests are the live workloads, and their nodes are neither given to another one nor removed. Nodes are counted from pods'
requests, not from the devices that new nodes report, so that a node with a slow device plug-in is not requested twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from .devices import take
from .model import RESIZABLE, Group, GroupChange, GroupNode, GroupPlace, Limits, NodeRequest, Room, ScalingPlan


def decide(groups: Iterable[Group], requests: Iterable[NodeRequest], now: float, limits: Limits) -> ScalingPlan:
    """The changes to make now. After them, another call changes nothing until something else has changed."""
    plans = {group.name: _GroupPlan(group, now, limits) for group in groups}
    places: dict[str, GroupPlace] = {}
    order = sorted(requests, key=lambda r: (r.created, r.key))
    has, waits = [r for r in order if r.provisioned], [r for r in order if not r.provisioned]
    # before any starts new nodes, those whose nodes are there: AWS may have the nodes of one, and not those of an older one
    for some, existing in ((has, False), (waits, True), (waits, False)):
        for request in some:
            if request.key in places:
                continue
            found = (plans[name].take(request, existing=existing) for name in request.groups if name in plans)
            if place := next(filter(None, found), None):
                places[request.key] = place
    changes = {name: plan.change(now, limits) for name, plan in plans.items()}
    kept = {name: change for name, change in changes.items() if change != GroupChange(requested=change.requested)}
    return ScalingPlan(kept, places)


def places(request: NodeRequest, free: list[Room]) -> tuple[set[int], int]:
    """The indices of the nodes that its pods take, whose free resources are lowered, and the number of pods without room. Pods without
    devices take none. The work grows with the number of nodes, not of pods, which others choose."""
    taken, missing = set[int](), 0
    for need, count in sorted(request.needs, reverse=True):
        rest = count if need[0] else 0
        for i, (left, devices) in enumerate(free):
            fits = max(0, min([rest, *(a // b for a, b in zip(left, need, strict=True) if b)]))
            if devices and fits:
                fits, devices = take(devices, need[0], fits)
            if fits:
                free[i] = tuple(a - b * fits for a, b in zip(left, need, strict=True)), devices
                taken.add(i)
                rest -= fits
        missing += rest
    return taken, missing


class _GroupPlan:
    """A node group while requests take nodes: those that exist, then those that could still be started."""

    def __init__(self, group: Group, now: float, limits: Limits) -> None:
        self.group = group
        stays = group.status in RESIZABLE  # in an update, EKS may have cordoned it too
        self._nodes = [
            n for n in group.nodes if n.state != "unusable" and (not n.leaving or (stays and n.state == "usable"))
        ]
        # a kubelet does not join again whose node was deleted, and a provisioned request would wait for it for ever
        self._late = {n.instance for n in self._nodes if n.state == "starting" and _expired(n, now, limits)}
        self._free: dict[str, Room] = {n.instance: (n.free, n.devices) for n in self._nodes}
        self._new: list[Room] = []
        self._started: list[int] = []
        """Number of new nodes that each request starts."""
        self._kept: set[str] = set()
        self._expected = False
        """True if pods are about to be placed on its nodes."""

    def take(self, request: NodeRequest, *, existing: bool) -> GroupPlace | None:
        """Places for the request's pods: its own nodes first, then the fullest, then the oldest. None if not all of them have room; but a
        request that was given its nodes before keeps the existing ones.

        Args:
            existing: only nodes that exist, and only in a group whose new nodes are reserved, so that all of a request come or none.
        """
        if existing and not self.group.atomic:
            return None
        new, group, open_ = not existing, self.group, self.group.status in RESIZABLE and not self.group.closed
        order = sorted(
            (n for n in self._nodes if not (request.provisioned and n.instance in self._late)),
            key=lambda n: (request.key not in n.holders, not n.busy, n.leaving, sum(n.free), n.since, n.instance),
        )
        free = [self._free[n.instance] for n in order]
        if new:
            more = max(0, group.maximum - len(group.nodes)) if open_ else len(self._new)
            free += self._new
            free += [(group.resources, ())] * (len(order) + more - len(free))
        taken, missing = places(request, free)
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
        return GroupPlace(group.name, len(taken), len(there), usable, missing)

    def change(self, now: float, limits: Limits) -> GroupChange:
        group, there = self.group, len(self.group.nodes)
        back = [n.name for n in group.nodes if n.leaving and (n.busy or n.instance in self._kept)]
        broken = tuple(n.name for n in group.nodes if n.broken)
        if group.status not in RESIZABLE:
            return GroupChange(isolate=broken, uncordon=tuple(back), requested=group.requested)
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
        return GroupChange(
            protect=tuple(n.instance for n in group.nodes if n.protected is False and n.instance in held),
            desired=desired if changed else None,
            reserve=self._to_reserve(desired) if group.atomic else (),
            isolate=tuple(name for name in broken if name not in cordon),
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


def _expired(node: GroupNode, now: float, limits: Limits) -> bool:
    limit = {"starting": limits.start, "usable": limits.idle, "unusable": limits.unusable}[node.state]
    return node.leaving or now - node.since >= limit
