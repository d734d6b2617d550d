"""A case of the tables: one check, an environment, the responses of AWS, and the expected findings."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

from trainium_cdk import settings
from trainium_cdk.description.checks.live import CheckTarget, checks_of
from trainium_cdk.description.checks.live.account import IDENTITY

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
BY_NAME = {c.name: c for engine in ("slurm", "eks", "pcs") for c in (IDENTITY, *checks_of(engine))}


class Case(NamedTuple):
    """`expected`: for each finding its level, and strings that it contains, in their order."""

    check: str
    env: str
    answer: Any
    expected: list[tuple[str, ...]]
    engine: str = "slurm"


def target(text: str, engine: str = "slurm") -> CheckTarget:
    return CheckTarget(settings.parse(text, "environment.yaml"), engine, NOW, account="111122223333")


def verify(case: Case) -> None:
    """Evaluates, and compares."""
    at = target(case.env, case.engine)
    check = {c.name: c for c in (IDENTITY, *checks_of(case.engine))}[case.check]
    assert check.wanted(at), "there is nothing to look at"
    reported = [
        (f.level, f"{f.what} = {f.value}: {f.reason}. Fix: {f.fix} [{at.where(f.key) if f.key else ''}]")
        for f in check.evaluate(at, case.answer)
    ]
    assert [level for level, _ in reported] == [parts[0] for parts in case.expected], reported
    for (_, text), (_, *parts) in zip(reported, case.expected, strict=True):
        for part in parts:
            assert part in text
