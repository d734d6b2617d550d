"""What rules are made of."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainium_cdk.catalog import InstanceType
from trainium_cdk.catalog.plain import listed as listed
from trainium_cdk.settings import ComputeResource, Engine, Environment, NodeGroup, Problem, Queue
from trainium_cdk.settings.problems import KeyPath

Rule = Callable[[Environment], Iterator[Problem]]


def error(key: KeyPath, value: Any, reason: str, fix: str, engine: Engine | None = None) -> Problem:
    return Problem(key, value, reason, fix, "error", engine=engine)


def warning(key: KeyPath, value: Any, reason: str, fix: str, engine: Engine | None = None) -> Problem:
    return Problem(key, value, reason, fix, "warning", engine=engine)


def info(key: KeyPath, value: Any, reason: str, fix: str, engine: Engine | None = None) -> Problem:
    return Problem(key, value, reason, fix, "info", engine=engine)


@dataclass(frozen=True)
class Fleet:
    """Nodes of one instance type, with their place in the environment: a compute resource of Slurm, or a node group of EKS.

    Attributes:
        at: key path of the compute resource or node group.
        queue_at: key path of what says how its nodes are bought and where they are: its queue, or the node group itself.
        queue, resource: what is there.
        kind: its instance type, as the catalogue describes it.
    """

    engine: Engine
    at: KeyPath
    queue_at: KeyPath
    queue: Queue | NodeGroup
    resource: ComputeResource | NodeGroup
    kind: InstanceType

    @property
    def name(self) -> str:
        """As people find it: `compute1/trn`, or the node group's name."""
        return f"{self.queue.name}/{self.resource.name}" if self.engine == "slurm" else self.resource.name

    @property
    def efa(self) -> bool:
        """Whether its nodes have EFA interfaces."""
        return self.kind.efa_of(self.resource.efa) > 0


@dataclass(frozen=True)
class Half:
    """What one engine makes of an environment."""

    engine: Engine
    env: Environment
    fleets: tuple[Fleet, ...]
    """Those whose instance type is known; the others are refused by a rule of their own."""

    @property
    def zone_ids(self) -> tuple[str, ...]:
        return self.env.zone_ids if self.engine == "slurm" else self.env.eks_zone_ids

    @property
    def instance_types(self) -> tuple[str, ...]:
        return self.env.instance_types if self.engine == "slurm" else self.env.eks_instance_types

    def zone_of(self, fleet: Fleet) -> str | None:
        """The one zone its nodes run in; None where there is none."""
        return fleet.queue.zone_id or next(iter(self.zone_ids), None)


def halves(env: Environment) -> tuple[Half, Half]:
    """Both engines' halves of an environment, Slurm's first."""
    return (
        Half("slurm", env, tuple(f for f in fleets(env) if f.engine == "slurm")),
        Half("eks", env, tuple(f for f in fleets(env) if f.engine == "eks")),
    )


def queues(env: Environment) -> Iterator[tuple[KeyPath, Queue]]:
    """The Slurm queues with their key paths."""
    for i, queue in enumerate(env.pcluster.queues):
        yield ("pcluster", "queues", i), queue


def groups(env: Environment) -> Iterator[tuple[KeyPath, NodeGroup]]:
    """The EKS node groups with their key paths."""
    for i, group in enumerate(env.eks.node_groups):
        yield ("eks", "node_groups", i), group


def resources(env: Environment) -> Iterator[tuple[KeyPath, ComputeResource | NodeGroup]]:
    """Whatever names a Trainium type, with its key path."""
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            yield (*at, "compute_resources", i), resource
    yield from groups(env)


def fleets(env: Environment) -> Iterator[Fleet]:
    """The nodes of both engines, where the instance type is known."""
    known = env.catalog.instances
    for at, queue in queues(env):
        for i, resource in enumerate(queue.compute_resources):
            if kind := known.get(resource.instance_type):
                yield Fleet("slurm", (*at, "compute_resources", i), at, queue, resource, kind)
    for at, group in groups(env):
        if kind := known.get(group.instance_type):
            yield Fleet("eks", at, at, group, group, kind)


def near(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or all of them, as they go into a fix."""
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1)
    return close[0] if close else listed(choices, "or")


def twice(values: Iterable[Any]) -> list[int]:
    """The places of the values that are there already."""
    seen: set[Any] = set()
    found = []
    for i, value in enumerate(values):
        if value in seen:
            found.append(i)
        seen.add(value)
    return found
