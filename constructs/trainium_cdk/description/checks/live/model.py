"""The parts of live checks: the target, what is checked, and the report."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from trainium_cdk.description import engines
from trainium_cdk.description.engines import Engine
from trainium_cdk.description.settings import Environment
from trainium_cdk.description.settings.inventory import Inventory, KnownNodes, Part, inventory
from trainium_cdk.problems import KeyPath, Level, Problem
from trainium_cdk.text import counted as counted
from trainium_cdk.text import join_words as join_words

if TYPE_CHECKING:
    from trainium_cdk.description.checks.live.aws import Aws

A = TypeVar("A")
QUALIFIER = "hnb659fds"
"""The CDK's default bootstrap qualifier."""


@dataclass(frozen=True)
class Subject:
    """Subject of a check, and the key of its setting. Each method returns a problem of the subject; `ok` reports that there is none."""

    what: str
    key: KeyPath = ()

    def ok(self, value: object, reason: str) -> Problem:
        return self._problem("ok", value, reason)

    def info(self, value: object, reason: str, fix: str = "") -> Problem:
        return self._problem("info", value, reason, fix)

    def warning(self, value: object, reason: str, fix: str) -> Problem:
        return self._problem("warning", value, reason, fix)

    def error(self, value: object, reason: str, fix: str) -> Problem:
        return self._problem("error", value, reason, fix)

    def _problem(self, level: Level, value: object, reason: str, fix: str = "") -> Problem:
        return Problem(self.key, str(value), reason, fix, level, what=self.what)


@dataclass(frozen=True)
class Quote:
    """A price.

    Attributes:
        usd: for its unit; None if it is not known.
        source: `environment file` or `catalogue`; empty if it is not known.
        date: the day on which it was published, as `2026-08-10`; empty if that is not known.
        text: what was read, also where that had no price.
        secondary: a person has read it on AWS's page and written it down; else it is AWS's own data.
        capacity_block: of an hour in a capacity block: AWS publishes no on-demand price.
    """

    usd: float | None = None
    source: Literal["environment file", "catalogue", ""] = ""
    date: str = ""
    text: str = ""
    secondary: bool = False
    capacity_block: bool = False


@dataclass(frozen=True)
class CheckTarget:
    """The stack of an environment that will be deployed.

    Attributes:
        engine: name of the engine whose stack it is.
        now: the current time, with its time zone.
        qualifier: the CDK's bootstrap qualifier.
        account: the account of the credentials; empty until they have been checked.
    """

    env: Environment
    engine: str
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    qualifier: str = QUALIFIER
    account: str = ""

    @property
    def of(self) -> Engine:
        return engines.get(self.engine)

    @cached_property
    def inventory(self) -> Inventory:
        return inventory(self.env, self.engine, self.now.date())

    @property
    def nodes(self) -> tuple[KnownNodes, ...]:
        return self.inventory.known_nodes

    @property
    def servers(self) -> tuple[Part, ...]:
        """The ordinary machines of the cluster."""
        return tuple(p for p in self.inventory.parts if p.instance_type and not p.nodes)

    @property
    def zone_ids(self) -> tuple[str, ...]:
        return self.inventory.zone_ids

    @property
    def stack(self) -> str:
        """The stack's name in the account."""
        first = self.of.stack
        return first if self.env.name == type(self.env)().name else f"{first}-{self.env.name}"

    @property
    def cluster(self) -> str:
        return self.inventory.cluster

    def quote(self, name: str) -> Quote:
        """The price of an instance type, or of a service by its name: the environment file's own, else the catalogue's."""
        catalog, region = self.env.catalog, self.env.region
        usd = (catalog.prices if "." in name else catalog.service_prices).get(region, {}).get(name)
        if usd is None:
            searched = next((one for one in catalog.unknown_prices if one.covers(name, region)), None)
            return Quote(text=f"not found on {searched.date}: {searched.searched}" if searched else "")
        source = catalog.price_source(name, region)
        if source is None:
            return Quote(usd, "environment file")
        return Quote(usd, "catalogue", str(source.date), source.text, source.secondary, source.capacity_block)

    def where(self, key: KeyPath) -> str:
        """The file and line of a key, as messages show it."""
        return self.env.source.where(key) if self.env.source.lines else ""

    def about(self, what: str, *key: str | int) -> Subject:
        """Return the subject of a check, with the key of its setting; none if no setting is affected."""
        return Subject(what, key)


Found = Iterator[Problem]


@dataclass(frozen=True)
class Check(Generic[A]):
    """One live check. `fetch` sends requests to AWS, `evaluate` is a pure function of the responses.

    Attributes:
        actions: the IAM actions that `fetch` needs. It cannot call any others.
        wanted: what is true, or not empty, if the check applies to the target.
    """

    name: str
    actions: tuple[str, ...]
    fetch: Callable[[CheckTarget, Aws], A]
    evaluate: Callable[[CheckTarget, A], Found]
    wanted: Callable[[CheckTarget], object] = lambda _: True


@dataclass(frozen=True)
class CheckReport:
    """All that was reported, in the order of the output."""

    stack: str
    environment: str
    region: str
    account: str
    findings: tuple[Problem, ...]
    cost: dict[str, Any]

    def of(self, *levels: Level) -> list[Problem]:
        return [f for f in self.findings if f.level in levels]

    def exit_code(self, *, strict: bool = False) -> int:
        """0; 1 with errors; with `strict`, 2 with warnings."""
        if self.of("error"):
            return 1
        return 2 if strict and self.of("warning") else 0

    def as_json(self) -> dict[str, Any]:
        counts = {level: len(self.of(level)) for level in ("error", "warning", "info", "ok")}
        keys = ("level", "what", "value", "reason", "fix", "where")
        findings = [{**{key: getattr(f, key) for key in keys}, "check": f.rule} for f in self.findings]
        return {**asdict(self), "findings": findings, "counts": counts}
