"""`trn report`: one HTML page about jobs, or a table of their steps."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.named import as_given, full_id
from trainium_cdk.cli.options import JobIds, Target, backend, catalog_of, described, on_cluster
from trainium_cdk.cli.output import echo, log, write_file
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs.report import Run
    from trainium_cdk.runner.readers.records import Evaluation, Step

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

    State, step, loss, time left, cost; curves over each other; times, failures, settings. An array's report has the members that have begun.
    One HTML file that needs no network. Prints its path. To see a job while it runs: `trn status --watch JOB`.
    """
    from trainium_cdk.jobs.report import collect_all
    from trainium_cdk.jobs.report import report as page
    from trainium_cdk.jobs.report.export import write_csv

    catalog = catalog_of(described(ctx))
    there = backend(on)
    ids = [as_given(there, job) for job in jobs]
    if output and output.suffix.lower() == ".csv":
        out = io.StringIO(newline="")
        steps: list[tuple[str, int, Step | Evaluation]] = []
        runs = collect_all(there, ids, catalog, take=lambda *one: steps.append(one), say=log)
        _check(runs)
        write_csv(out, runs, steps, sandbox=sandboxed())
        text = out.getvalue()
    else:
        runs = collect_all(there, ids, catalog, say=log)
        text = page(runs, there.cluster, catalog, time.time(), sandbox=sandboxed())
    file = output or Path(f"report-{full_id(there, ids[0]).replace('/', '-')}.html")
    write_file(file, text, _MODE)
    echo(str(file.resolve()))


def _check(runs: Sequence[Run]) -> None:
    """Log why jobs have no metrics. Raises TrnError: none has."""
    from trainium_cdk.jobs.report.page import why_no_curve

    for run in runs:
        if not run.curves:
            log(f"no metrics of {run.status.id}: {why_no_curve(run)}")
    if not any(run.curves for run in runs):
        raise TrnError("there is nothing to write: none of the jobs has metrics in its log")
