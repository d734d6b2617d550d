"""`trn report`: one HTML page about jobs, or a table of their steps."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.named import as_given, full_id
from trainium_cdk.cli.options import JobIds, Target, at, backend, catalog_of, described, on_cluster
from trainium_cdk.cli.output import echo, log, status_when_interrupted, still_runs, write_file
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs import Backend
    from trainium_cdk.jobs.report import Run
    from trainium_cdk.jobs.report.live import Live
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
    live: Annotated[
        bool, typer.Option("--live", help="Serve the page on this machine instead, and make it again every few seconds.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, show_default=False, help="With --live: port of this machine. Default: a free one.")
    ] = 0,
) -> None:  # fmt: skip
    """Write a page about one or several jobs.

    State, step, loss, time left, cost; curves over each other; times, failures, settings. Of an array, its members that have begun.
    One HTML file that needs no network. Prints its path, or with --live its address.
    """
    from trainium_cdk.jobs.report import collect_all
    from trainium_cdk.jobs.report import report as page
    from trainium_cdk.jobs.report.export import write_csv
    from trainium_cdk.jobs.report.live import Live

    catalog = catalog_of(described(ctx))
    there = backend(on)
    ids = [as_given(there, job) for job in jobs]
    if live:
        if output:
            raise TrnError("--live serves a page, and --output writes one. Leave one of them out")
        with status_when_interrupted(
            lambda: f"{still_runs(' '.join(ids))}. To serve again: trn report --live {' '.join(ids)}{at(on)}"
        ):
            _serve(Live(there, ids, catalog), there, catalog, port)
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


def _serve(live: Live, jobs: Backend[Any], catalog: Catalog, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from trainium_cdk.cli.web import serve
    from trainium_cdk.jobs.report import report as page

    text = ""

    def shown() -> str:
        if not text:
            raise TrnError(live.problem or "no member has begun yet. This page is loaded again every 5 s")
        return text

    with serve(shown, port) as url:
        echo(url)
        log("open it in a browser on this machine")
        while True:
            live.look()
            if live.runs:
                again = None if live.ended else max(1, round(live.pause))
                text = page(live.runs, jobs.cluster, catalog, time.time(), again, live.problem, sandbox=sandboxed())
            if live.ended:
                log(f"{live.problem or 'all have ended'}; the page stays until Ctrl-C")
            while live.ended:
                time.sleep(3600)
            time.sleep(live.pause)


def _check(runs: Sequence[Run]) -> None:
    """Log why jobs have no metrics. Raises TrnError: none has."""
    from trainium_cdk.jobs.report.page import why_no_curve

    for run in runs:
        if not run.curves:
            log(f"no metrics of {run.status.id}: {why_no_curve(run)}")
    if not any(run.curves for run in runs):
        raise TrnError("there is nothing to write: none of the jobs has metrics in its log")
