"""The parts of rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainium_cdk import engines
from trainium_cdk.catalog import InstanceType
from trainium_cdk.catalog.plain import listed as listed
from trainium_cdk.engines import Engine, Nodes
from trainium_cdk.settings import ComputeResource, Environment, NodeGroup, Problem, Queue
from trainium_cdk.settings.problems import KeyPath

Rule = Callable[[Environment], Iterator[Problem]]


def error(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "error", engine=engine)


def warning(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "warning", engine=engine)


def info(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "info", engine=engine)


@dataclass(frozen=True)
class KnownNodes(Nodes):
    """Nodes of one known instance type.

    Attributes:
        engine: whose nodes they are.
        kind: the instance type, as the catalogue describes it.
    """

    engine: Engine
    kind: InstanceType

    @property
    def efa(self) -> bool:
        """Whether its nodes have EFA interfaces."""
        return self.kind.efa_of(self.resource.efa) > 0


@dataclass(frozen=True)
class EngineView:
    """What one engine makes of an environment."""

    engine: Engine
    env: Environment
    nodes: tuple[KnownNodes, ...]
    """Those whose instance type is known; the others are refused by a rule of their own."""

    @property
    def zone_ids(self) -> tuple[str, ...]:
        return self.engine.zone_ids(self.env)

    @property
    def instance_types(self) -> tuple[str, ...]:
        return self.engine.instance_types(self.env)

    def zone_of(self, nodes: KnownNodes) -> str | None:
        """The one zone its nodes run in; None where there is none."""
        return self.engine.zone_of(self.env, nodes.queue)


def view(env: Environment, engine: Engine) -> EngineView:
    known = env.catalog.instances
    found = (
        KnownNodes(n.at, n.queue_at, n.queue, n.resource, engine, kind)
        for n in engine.nodes(env)
        if (kind := known.get(n.resource.instance_type))
    )
    return EngineView(engine, env, tuple(found))


def views(env: Environment) -> tuple[EngineView, ...]:
    """What each engine makes of an environment."""
    return tuple(view(env, engine) for engine in engines.every().values())


def queues(env: Environment) -> Iterator[tuple[KeyPath, Queue]]:
    """The Slurm queues with their key paths."""
    for i, queue in enumerate(env.pcluster.queues):
        yield ("pcluster", "queues", i), queue


def groups(env: Environment) -> Iterator[tuple[KeyPath, NodeGroup]]:
    """The EKS node groups with their key paths."""
    for i, group in enumerate(env.eks.node_groups):
        yield ("eks", "node_groups", i), group


def resources(env: Environment) -> Iterator[tuple[KeyPath, ComputeResource | NodeGroup]]:
    """The compute resources and node groups, with their key paths."""
    for engine in engines.every().values():
        for nodes in engine.nodes(env):
            yield nodes.at, nodes.resource


def zoned(env: Environment) -> Iterator[tuple[KeyPath, Queue | NodeGroup, Engine]]:
    """Whatever may name a zone and a capacity type, with its key path; each once."""
    for engine in engines.every().values():
        for at, queue in {nodes.queue_at: nodes.queue for nodes in engine.nodes(env)}.items():
            yield at, queue, engine


def known_nodes(env: Environment) -> Iterator[KnownNodes]:
    """The nodes of all engines, where the instance type is known."""
    for one in views(env):
        yield from one.nodes


def near(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or all known names, for use in a fix."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1)
    return close[0] if close else listed(choices, "or")


def duplicates(values: Iterable[Any]) -> list[int]:
    """The indices of values that occurred before."""
    seen: set[Any] = set()
    repeated = []
    for i, value in enumerate(values):
        if value in seen:
            repeated.append(i)
        seen.add(value)
    return repeated
