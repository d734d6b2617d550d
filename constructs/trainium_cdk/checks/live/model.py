"""What live checks are made of: the target they look at, what they find, and the report of all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from trainium_cdk import engines
from trainium_cdk.checks.rule import EngineView, Fleet, view
from trainium_cdk.engines import Engine
from trainium_cdk.settings import Environment
from trainium_cdk.settings.problems import KeyPath

if TYPE_CHECKING:
    from trainium_cdk.checks.live.aws import Aws

A = TypeVar("A")
Level = Literal["ok", "info", "warning", "error"]
QUALIFIER = "hnb659fds"
"""The CDK's own bootstrap qualifier."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        level: `error` would fail or cost money for nothing; `warning` may be meant; `info` is worth knowing; `ok` was checked.
        what: what was looked at: `vCPU quota of on-demand Trn instances`.
        value: what is there.
        reason: what that means for this environment.
        fix: what to do; empty where nothing is to be done.
        where: the file and line, or the key of the environment file, that it comes from; empty where it comes from none.
        check: the name of the check or offline rule that found it.
    """

    level: Level
    what: str
    value: str
    reason: str
    fix: str = ""
    where: str = ""
    check: str = ""


@dataclass(frozen=True)
class Target:
    """What is to be deployed: one stack of an environment.

    Attributes:
        engine: name of the engine whose stack it is.
        now: the moment that time windows are compared with, with its time zone.
        qualifier: the CDK's bootstrap qualifier.
        account: the account of the credentials; empty before they were looked at.
    """

    env: Environment
    engine: str
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    qualifier: str = QUALIFIER
    account: str = ""

    @property
    def of(self) -> Engine:
        return engines.get(self.engine)

    @property
    def view(self) -> EngineView:
        return view(self.env, self.of)

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        return self.view.fleets

    @property
    def zone_ids(self) -> tuple[str, ...]:
        return self.view.zone_ids

    @property
    def stack(self) -> str:
        """The stack's name in the account."""
        first = self.of.stack
        return first if self.env.name == type(self.env)().name else f"{first}-{self.env.name}"

    @property
    def cluster(self) -> str:
        return self.of.cluster_name(self.env)

    def where(self, key: KeyPath) -> str:
        """The file and line of a key, as messages show it."""
        return self.env.source.where(key) if self.env.source.lines else ""


Found = Iterator[Finding]


@dataclass(frozen=True)
class Check(Generic[A]):
    """One live check: `fetch` asks AWS, `judge` is a pure function of the answers.

    Attributes:
        actions: the IAM actions that `fetch` needs; it can call no others.
        wanted: whether there is anything to look at.
    """

    name: str
    actions: tuple[str, ...]
    fetch: Callable[[Target, Aws], A]
    judge: Callable[[Target, A], Found]
    wanted: Callable[[Target], bool] = lambda _: True


@dataclass(frozen=True)
class Report:
    """All that was found, in the order in which it is told."""

    stack: str
    environment: str
    region: str
    account: str
    findings: tuple[Finding, ...]
    cost: dict[str, Any]

    def of(self, *levels: Level) -> list[Finding]:
        return [f for f in self.findings if f.level in levels]

    def exit_code(self, *, strict: bool = False) -> int:
        """0; 1 with errors; 2 with warnings, where `strict`."""
        if self.of("error"):
            return 1
        return 2 if strict and self.of("warning") else 0

    def as_json(self) -> dict[str, Any]:
        counts = {level: len(self.of(level)) for level in ("error", "warning", "info", "ok")}
        return {**asdict(self), "findings": [asdict(f) for f in self.findings], "counts": counts}


def counted(number: int, noun: str) -> str:
    """`1 address`, `2 addresses`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def listed(words: Iterable[object]) -> str:
    """Words as people list them: `a, b and c`; `none` where there are none."""
    found = [str(w) for w in words]
    return f"{', '.join(found[:-1])} and {found[-1]}" if len(found) > 1 else found[0] if found else "none"
