"""The parts of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from pydantic import BaseModel

from trainium_cdk.description.settings import Environment, NodeGroup, Problem, Queue
from trainium_cdk.description.settings.inventory import Inventory, KnownNodes
from trainium_cdk.description.settings.inventory import inventories as inventories
from trainium_cdk.description.settings.section import QueueSettings
from trainium_cdk.errors import similar
from trainium_cdk.problems import KeyPath, Level
from trainium_cdk.text import join_words as join_words

Rule = Callable[[Environment], Iterator[Problem]]
SOURCES: dict[str, str] = {}
"""The source of each rule with errors, by its id. Where AWS, Slurm and Kubernetes refuse nothing, there is a warning."""
_OF_KEY = object()


class Rules(list[Rule]):
    """The rules of a module, in the order in which their problems are reported."""

    def add(self, rule: Rule) -> Rule:
        """Register a rule without errors. A problem that names no value gets the environment's value of its key."""

        @wraps(rule)
        def checked(env: Environment) -> Iterator[Problem]:
            return with_values(rule(env), env)

        self.append(checked)
        return checked

    def refuse(self, source: str) -> Callable[[Rule], Rule]:
        """Register a rule that has errors.

        Args:
            source: a page of a guide, or ParallelCluster's validator, and what it says; several with "; " between. `catalogue` stands for the
                source of its file, `promise` for docs/about/security.md, `stack` for what the stack itself cannot make.
        """

        def registered(rule: Rule) -> Rule:
            SOURCES[rule_id(rule)] = source
            return self.add(rule)

        return registered


def with_values(problems: Iterable[Problem], described: Any) -> Iterator[Problem]:
    """The problems, those that name no value with the value that their key has in what they describe."""
    for problem in problems:
        yield replace(problem, value=_value(described, problem.key)) if problem.value is _OF_KEY else problem


def _value(found: Any, key: KeyPath) -> Any:
    for step in key:
        found = getattr(found, str(step)) if isinstance(found, BaseModel) else found[step]
    if isinstance(found, tuple):
        return join_words(found)
    return "(absent)" if found is None else found


def _problem(
    level: Level, key: KeyPath, reason: str, fix: str, *, value: Any = _OF_KEY, engine: str | None = None
) -> Problem:
    return Problem(key, value, reason, fix, level, engine=engine)


error, warning, info = partial(_problem, "error"), partial(_problem, "warning"), partial(_problem, "info")


def rule_id(rule: Rule) -> str:
    """The id of a rule, by which a finding of it is acknowledged: the noun of the finding, as `static-nodes`."""
    return rule.__name__.replace("_", "-")


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


def zoned(env: Environment) -> Iterator[tuple[KeyPath, QueueSettings, Inventory]]:
    """Whatever may name a zone and a capacity type, with its key path and its cluster; each once."""
    for cluster in inventories(env):
        for at, queue in {nodes.queue_at: nodes.queue for nodes in cluster.nodes}.items():
            yield at, queue, cluster


def near(name: str, names: Iterable[str]) -> str:
    """The known name that was probably meant, or all known names, for use in a fix."""
    choices = sorted(names)
    return similar(name, choices) or join_words(choices, "or")


def duplicates(values: Iterable[Any]) -> list[int]:
    """The indices of values that occurred before."""
    seen: set[Any] = set()
    repeated = []
    for i, value in enumerate(values):
        if value in seen:
            repeated.append(i)
        seen.add(value)
    return repeated
