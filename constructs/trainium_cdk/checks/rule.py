"""The parts of rules."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainium_cdk.catalog.plain import listed as listed
from trainium_cdk.settings import Environment, NodeGroup, Problem, Queue
from trainium_cdk.settings.inventory import Inventory, KnownNodes
from trainium_cdk.settings.inventory import inventories as inventories
from trainium_cdk.settings.problems import KeyPath
from trainium_cdk.settings.section import Placed

Rule = Callable[[Environment], Iterator[Problem]]


def error(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "error", engine=engine)


def warning(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "warning", engine=engine)


def info(key: KeyPath, value: Any, reason: str, fix: str, engine: str | None = None) -> Problem:
    return Problem(key, value, reason, fix, "info", engine=engine)


def queues(env: Environment) -> Iterator[tuple[KeyPath, Queue]]:
    """The Slurm queues with their key paths."""
    for i, queue in enumerate(env.pcluster.queues):
        yield ("pcluster", "queues", i), queue


def groups(env: Environment) -> Iterator[tuple[KeyPath, NodeGroup]]:
    """The EKS node groups with their key paths."""
    for i, group in enumerate(env.eks.node_groups):
        yield ("eks", "node_groups", i), group


def known_nodes(env: Environment) -> Iterator[KnownNodes]:
    """The nodes of all engines, where the instance type is known."""
    for cluster in inventories(env):
        yield from cluster.known_nodes


def zoned(env: Environment) -> Iterator[tuple[KeyPath, Placed, Inventory]]:
    """Whatever may name a zone and a capacity type, with its key path and its cluster; each once."""
    for cluster in inventories(env):
        for at, queue in {nodes.queue_at: nodes.queue for nodes in cluster.nodes}.items():
            yield at, queue, cluster


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
