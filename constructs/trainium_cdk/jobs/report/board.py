"""All clusters of an account and their jobs, as rows of text: the terminal, the browser and `trn clusters` show the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainium_cdk.catalog.plain import counted
from trainium_cdk.catalog.prices import describe_sum
from trainium_cdk.jobs.clusters import Overview, Work, rank
from trainium_cdk.jobs.report.text import duration

_LATE = 90.0
"""Seconds after which it is said how old a cluster's figures are."""


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _money(one: Overview, value: float | None) -> str:
    return ("" if one.nodes is None else "unknown") if value is None else f"{value:,.2f}"


CLUSTER: Mapping[str, Callable[[Overview], str]] = {
    "region": lambda one: one.region,
    "stack": lambda one: one.stack,
    "engine": lambda one: one.engine,
    "state": lambda one: one.state,
    "nodes": lambda one: _count(one.nodes),
    "busy": lambda one: _count(one.busy),
    "idle": lambda one: _count(one.idle) if one.nodes is None or one.idle is not None else "unknown",
    "failed": lambda one: _count(one.failed),
    "running": lambda one: _count(one.running),
    "waiting": lambda one: _count(one.waiting),
    "longest wait": lambda one: duration(one.longest_wait, ""),
    "USD/h": lambda one: _money(one, one.usd_per_hour),
    "of it idle": lambda one: _money(one, one.usd_per_hour_idle),
}
"""The columns of a cluster."""
LIVE = [name for name in CLUSTER if name != "state"]
"""Those of the live views: where the state matters, the sentence beside it has it."""


def told(one: Overview, now: float) -> str:
    """What should be looked at, in a sentence; empty if all is well."""
    said = [*(f"alarm: {alarm}" for alarm in one.alarms or ()), *one.problems]
    age = duration(now - one.answered) if one.answered else ""
    if one.note:
        said.insert(0, f"no answer for {age}, still trying: {one.note}" if age else one.note)
    elif one.answered and now - one.answered > _LATE:
        said.insert(0, f"the figures are {age} old")
    return "; ".join(said)


@dataclass(frozen=True)
class Choice:
    """Which jobs are shown, and how.

    Attributes:
        cluster: its key; empty for all. owner: a user or a team; empty for all. sort: one of `SORTS`.
    """

    cluster: str = ""
    owner: str = ""
    sort: str = "state"


class Shown(NamedTuple):
    """A job in the list; `now` in seconds since 1970."""

    cluster: Overview
    job: Work
    now: float


SORTS: Mapping[str, Callable[[Shown], tuple[object, ...]]] = {
    "state": lambda _: (),
    "owner": lambda row: (owner(row.job),),
    "age": lambda row: (row.now - (row.job.submitted or row.now),),
    "cost": lambda row: (-(row.job.usd or 0.0),),
}
"""Orders of the jobs; those that are equal in one keep that of `state`: running, waiting, ended."""


def owner(one: Work) -> str:
    """Whose job it is, as it is shown."""
    return "/".join(part for part in (one.team, one.user) if part)


def owners(found: Sequence[Overview]) -> list[str]:
    """All users and teams that have jobs."""
    return sorted({name for one in found for job in one.jobs for name in (job.team, job.user) if name})


def jobs(found: Sequence[Overview], choice: Choice, now: float) -> list[Shown]:
    """The chosen jobs."""
    every = [
        Shown(one, job, now)
        for one in found
        for job in one.jobs
        if choice.cluster in ("", one.key) and choice.owner in ("", job.team, job.user)
    ]
    every.sort(key=lambda row: rank(row.job))
    return sorted(every, key=SORTS.get(choice.sort, SORTS["state"]))


JOB: Mapping[str, Callable[[Shown], str]] = {
    "job": lambda row: row.job.id,
    "cluster": lambda row: row.cluster.stack,
    "owner": lambda row: owner(row.job),
    "state": lambda row: row.job.state,
    "stage": lambda row: row.job.stage if row.job.client == "trn" else row.job.client,
    "age": lambda row: duration(row.now - row.job.submitted, "") if row.job.submitted else "",
    "nodes": lambda row: _count(row.job.nodes),
    "USD": lambda row: "" if row.job.usd is None else f"{row.job.usd:,.2f}",
    "reason": lambda row: row.job.reason or (f"waits for {duration(row.job.waiting)}" if row.job.waiting else ""),
}
"""The columns of a job."""
RIGHT = frozenset(CLUSTER) - {"region", "stack", "engine", "state"} | {"age", "USD"}
"""Columns of numbers."""


def _sum(usd: float, unknown: int) -> str:
    return describe_sum(usd, [counted(unknown, "cluster")] if unknown else [])


def totals(found: Sequence[Overview]) -> str:
    """All clusters in a sentence."""
    asked = [one for one in found if one.nodes is not None]
    priced = [one for one in asked if one.usd_per_hour is not None]
    least = sum(one.usd_per_hour_idle or 0 if one.usd_per_hour is None else one.usd_per_hour for one in asked)
    idle = [one.usd_per_hour_idle for one in asked if one.usd_per_hour_idle is not None]
    unpriced = [one for one in asked if one.usd_per_hour is None and one.usd_per_hour_idle is None]
    hidden = len(asked) - len(idle) - len(unpriced)
    parts = [
        counted(len(found), "cluster"),
        f"nodes: {sum(one.nodes or 0 for one in asked)} on",
        f"jobs: {sum(one.running or 0 for one in asked)} run, {sum(one.waiting or 0 for one in asked)} wait",
        f"{_sum(least, len(asked) - len(priced))}, of it idle {_sum(sum(idle), len(unpriced))}",
    ]
    missing = [
        f"{n} {what}"
        for n, what in ((len(found) - len(asked), "not answering"), (hidden, "with unknown idle nodes"))
        if n
    ]
    return "; ".join([", ".join(parts), *missing])
