"""`trn report`: one HTML page about jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import JobIds, Target, backend, described, on_cluster
from trainium_cdk.cli.output import answer, say, write_file

_MODE = 0o644


@on_cluster()
def report(
    ctx: typer.Context,
    on: Target,
    jobs: JobIds,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file. Default: report-JOB.html in this folder.")
    ] = None,
) -> None:
    """Write a page about one or several jobs.

    Curves over each other, compile time, restarts, cost, failures, settings; of an array those of all members that have begun. It is
    one HTML file that needs no network. Prints its path.
    """
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs.report import collect_all
    from trainium_cdk.jobs.report import report as page

    env = described(ctx)
    catalog = env.catalog if env else Catalog.load()
    there = backend(on)
    ids = [whole(there, job) for job in jobs]
    runs = collect_all(there, ids, catalog, say=say)
    file = output or Path(f"report-{ids[0].replace('/', '-')}.html")
    write_file(file, page(runs, there.cluster, catalog, time.time(), sandbox=sandboxed()), _MODE)
    answer(str(file.resolve()))
