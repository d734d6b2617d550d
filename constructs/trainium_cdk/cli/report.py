"""`trn report`: one HTML page about jobs, or a table of their steps."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import JobIds, Target, backend, described, on_cluster
from trainium_cdk.cli.output import answer, say, write_file
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs.report import Run

_MODE = 0o644


@on_cluster()
def report(
    ctx: typer.Context,
    on: Target,
    jobs: JobIds,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file: a page, or with .csv a table of all steps. Default: report-JOB.html in this folder."),
    ] = None,
) -> None:  # fmt: skip
    """Write a page about one or several jobs.

    Curves over each other, compile time, restarts, cost, failures, settings; of an array those of all members that have begun. It is
    one HTML file that needs no network. Prints its path.
    """
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs.report import collect_all
    from trainium_cdk.jobs.report import report as page
    from trainium_cdk.jobs.report.export import as_csv

    env = described(ctx)
    catalog = env.catalog if env else Catalog.load()
    there = backend(on)
    ids = [whole(there, job) for job in jobs]
    file = output or Path(f"report-{ids[0].replace('/', '-')}.html")
    if file.suffix.lower() == ".csv":
        out = io.StringIO(newline="")
        runs = collect_all(there, ids, catalog, take=as_csv(out, sandbox=sandboxed()), say=say)
        _check(runs)
        text = out.getvalue()
    else:
        runs = collect_all(there, ids, catalog, say=say)
        text = page(runs, there.cluster, catalog, time.time(), sandbox=sandboxed())
    write_file(file, text, _MODE)
    answer(str(file.resolve()))


def _check(runs: Sequence[Run]) -> None:
    """Raises TrnError: no job has metrics. Of those without, the reason is printed."""
    from trainium_cdk.jobs.report.page import why_no_curve

    for run in runs:
        if not run.curves:
            say(f"no metrics of {run.status.id}: {why_no_curve(run)}")
    if not any(run.curves for run in runs):
        raise TrnError("there is nothing to write: none of the jobs has metrics in its log")
