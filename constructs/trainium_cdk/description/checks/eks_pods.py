"""Amazon EKS: whether the system nodes hold all pods that are installed on them, and the pods that `trn` starts there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from trainium_cdk.description.catalog.pods import Machine, Pod, Room, machine, pods
from trainium_cdk.description.checks.rule import Rules, error, join_words
from trainium_cdk.description.settings import Environment, Problem, SystemNodes
from trainium_cdk.problems import KeyPath

LARGER = (
    "m5.large", "r5.large", "m5.xlarge", "r5.xlarge", "m5.2xlarge", "r5.2xlarge", "m5.4xlarge", "r5.4xlarge", "r5.8xlarge",
)  # fmt: skip
"""Types that a fix may name, the cheapest first."""
_MOST_NODES = 100
_MORE = 8
"""Nodes that a fix adds at most."""
_LEAST_GIB = 4
"""Never advise less: code and packages alone take that much."""
_AT: KeyPath = ("eks", "system", "instance_type")

RULES = Rules()


class StartedPod(NamedTuple):
    """A pod on the system nodes, and what it does, as a sentence says it."""

    what: str
    room: Room


class SystemPods(NamedTuple):
    """Pods that system nodes must hold: pods of each node, a fixed number for the cluster, and pods `trn` starts."""

    own: tuple[Pod, ...]
    shared: tuple[Pod, ...]
    started: tuple[StartedPod, ...]


@RULES.refuse("Kubernetes, concepts/configuration/manage-resources-containers: no pod beyond a node's room")
def small_system_nodes(env: Environment) -> Iterator[Problem]:
    """A sum of requests: each node's own pods, the controllers, and then one of the largest pods that `trn` starts."""
    system, kind = env.eks.system, machine(env.eks.system.instance_type)
    if kind is None:
        return
    brought = partial(pods().installed, env.eks_parts)
    asked = SystemPods(brought("every"), brought("system"), started(env.eks.prepare_memory_gib))
    if not (found := _without_room(asked, kind, system.nodes)):
        return
    wanted, free = found
    one, taken = pods().allocatable(kind), _sum(asked.own * system.nodes + asked.shared)
    lacks = f"{_number(wanted.room.cpu / 1000)} CPUs and {_number(wanted.room.memory / 1024)} GiB of memory left"
    if all(node.pods < wanted.room.pods for node in free):
        lacks = f"room in its {one.pods} pods"
    yield error(
        _AT,
        f"what is installed on {system.nodes} such node{'s' if system.nodes > 1 else ''} requests {_number(taken.cpu / 1000)} of "
        f"{_number(one.cpu * system.nodes / 1000)} CPUs and {_number(taken.memory / 1024)} of {_number(one.memory * system.nodes / 1024)} GiB of "
        f"memory. No node has {lacks} for {wanted.what}, which would never start",
        _fix(system, asked, wanted, free),
    )


def started(gib: int | None) -> tuple[StartedPod, ...]:
    """The pods that `trn` starts on system nodes, the largest first.

    Args:
        gib: memory of `prepare`; None for the default.
    """
    facts = pods().helpers
    largest = max((facts.prepare.helper(fetches, gib) for fetches in facts.prepare.memory), key=lambda h: h.memory)
    return (
        StartedPod("the pod that fetches a job's models (`prepare`)", Room(largest.cpu, largest.memory)),
        StartedPod("TensorBoard", Room(facts.tensorboard.cpu, facts.tensorboard.memory)),
        StartedPod("the pod that reads a job's files (trn logs)", Room(facts.reader.cpu, facts.reader.memory)),
    )


def _without_room(asked: SystemPods, kind: Machine, nodes: int) -> tuple[StartedPod, list[Room]] | None:
    """The first pod that no node has room for, and what the nodes have left; None if all have."""
    left = pods().allocatable(kind).less(_sum(asked.own))
    free = [left] * nodes
    if min(left) < 0:
        return StartedPod("the pods of each node", _sum(asked.own)), free
    for pod in asked.shared:
        for _ in range(pod.count):
            if not (after := placed(free, pod.room, kind)):
                return StartedPod(pod.name, pod.room), free
            free = after
    return next(((w, free) for w in asked.started if not any(node.holds(w.room) for node in free)), None)


def placed(free: Sequence[Room], wanted: Room, kind: Machine) -> list[Room]:
    """Return the nodes' room with one more pod; empty if none holds it. Like the default scheduler, choose the emptiest node that holds it."""
    able = [i for i, node in enumerate(free) if node.holds(wanted)]
    if not able:
        return []
    best = max(able, key=lambda i: free[i].cpu / (kind.vcpus * 1000) + free[i].memory / kind.memory)
    return [node.less(wanted) if i == best else node for i, node in enumerate(free)]


def _fix(system: SystemNodes, asked: SystemPods, wanted: StartedPod, free: Iterable[Room]) -> str:
    kinds = {name: kind for name in (system.instance_type, *LARGER) if (kind := machine(name))}
    larger = (name for name, kind in kinds.items() if not _without_room(asked, kind, system.nodes))
    ways = [f"write instance_type: {found}" for found in [*larger][:1]]
    counts = range(system.nodes + 1, min(system.nodes + _MORE, _MOST_NODES) + 1)
    if count := next((n for n in counts if not _without_room(asked, kinds[system.instance_type], n)), 0):
        ways.append(f"write nodes: {count}{f' and max_nodes: {count}' if count > system.max_nodes else ''}")
    gib = max((node.memory for node in free if node.holds(wanted.room._replace(memory=0))), default=0) // 1024
    if wanted is asked.started[0] and _LEAST_GIB <= gib < wanted.room.memory // 1024:
        ways.append(f"write eks.prepare_memory_gib: {gib} if no job needs more")
    return join_words(ways, "or") or "install less"


def _sum(some: Iterable[Pod]) -> Room:
    found = [pod.room for pod in some for _ in range(pod.count)]
    return Room(sum(r.cpu for r in found), sum(r.memory for r in found), len(found))


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
