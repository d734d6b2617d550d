"""`trn report`: one HTML page about jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.client.cli.named import as_given, full_id
from trainium_cdk.client.cli.options import JobIds, Target, backend, catalog_of, described, on_cluster
from trainium_cdk.client.cli.output import echo, log, write_file
from trainium_cdk.errors import TrnError

_MODE = 0o644


@on_cluster()
def report(
    ctx: typer.Context,
    on: Target,
    jobs: JobIds,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page's file. Default: report-JOB.html in this folder."),
    ] = None,
) -> None:
    """Write a page about one or several jobs.

    State, step, loss, time left, cost; curves over each other; times, failures, settings. An array's report has the members that have begun.
    One HTML file that needs no network. Prints its path. To see a job while it runs: `trn status --watch JOB`.
    """
    from trainium_cdk.client.jobs.report import collect_all
    from trainium_cdk.client.jobs.report import report as page

    if output and output.suffix.lower() in (".csv", ".json", ".jsonl"):
        raise TrnError(
            f"{output} would be a table, and a report is a page. For each step as JSON: trn logs JOB --metrics"
        )
    catalog = catalog_of(described(ctx))
    there = backend(on)
    ids = [as_given(there, job) for job in jobs]
    runs = collect_all(there, ids, catalog, say=log)
    text = page(runs, there.cluster, catalog, time.time(), sandbox=sandboxed())
    file = output or Path(f"report-{full_id(there, ids[0]).replace('/', '-')}.html")
    write_file(file, text, _MODE)
    echo(str(file.resolve()))
