"""`trn clusters`: the deployed clusters of an account."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.catalog.prices import describe_sum
from trainium_cdk.cli import named
from trainium_cdk.cli.options import EnvFile, Json, Region, described
from trainium_cdk.cli.output import echo_json, log, log_if_sandbox, table, with_sandbox
from trainium_cdk.jobs.report.text import duration

if TYPE_CHECKING:
    from trainium_cdk.jobs.clusters import Overview


def clusters(
    ctx: typer.Context,
    regions: Annotated[
        str | None,
        typer.Option(metavar="R,...|all", help="Regions; `all`: those with Trainium. Default: the one of --region."),
    ] = None,
    region: Region = None,
    _env: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the deployed clusters of the account.

    Of all engines: nodes, jobs, and the price of an hour; with --json also their jobs. It only reads. Exit code 1: a region could
    not be read. A cluster that does not answer has its reason in the list.
    """
    from trainium_cdk.jobs.clusters import overviews
    from trainium_cdk.outputs.read import here, with_trainium

    wanted = [here(region)] if regions is None else named.regions(regions, with_trainium())
    environment = described(ctx)
    now = time.time()
    found, notes = overviews(wanted, environment.catalog if environment else None)
    if as_json:
        echo_json(with_sandbox([asdict(one) for one in found]))
    elif found:
        log_if_sandbox()
        table(
            "",
            [*COLUMNS, "note"],
            [[*(cell(one) for cell in COLUMNS.values()), describe_state(one, now)] for one in found],
        )
        log(f"{totals(found)}. All of a stack: trn cost")
    else:
        log(f"no cluster of trainium-cdk in {', '.join(wanted)}" + ("" if regions else ". Elsewhere: --regions all"))
    for note in notes:
        log(note)
    if notes:
        raise typer.Exit(1)


_LATE = 90.0
"""Seconds after which it is said how old a cluster's figures are."""


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _money(one: Overview, value: float | None) -> str:
    return ("" if one.nodes is None else "unknown") if value is None else f"{value:,.2f}"


COLUMNS: Mapping[str, Callable[[Overview], str]] = {
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


def describe_state(one: Overview, now: float) -> str:
    """What should be looked at, in a sentence; empty if all is well."""
    said = [*(f"alarm: {alarm}" for alarm in one.alarms or ()), *one.problems]
    age = duration(now - one.answered) if one.answered else ""
    if one.note:
        said.insert(0, f"no answer for {age}, still trying: {one.note}" if age else one.note)
    elif one.answered and now - one.answered > _LATE:
        said.insert(0, f"the figures are {age} old")
    return "; ".join(said)


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
