"""`trn watch`: a live view of a job, or of all jobs, in the terminal or a browser."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli import screen
from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import Target, at, backend, described, on_cluster
from trainium_cdk.cli.output import answer, one_line, say, say_if_sandbox, status_when_interrupted, write_file
from trainium_cdk.cli.terminal import draws
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs import Backend, JobStatus
    from trainium_cdk.jobs.report.live import Live

_LIST = 10.0
"""Seconds between two requests for all jobs."""


@on_cluster()
def watch(
    ctx: typer.Context,
    on: Target,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Id of the job, a beginning of it that is enough, or `latest`. Default: all jobs.")] = None,
    web: Annotated[bool, typer.Option("--web", help="In a browser: serve a page on this machine, and print its address.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, show_default=False, help="With --web: port of this machine. Default: a free one.")] = 0,
) -> None:  # fmt: skip
    """Follow a job, or all jobs, in a live view.

    Stages, compilation, steps, curves, time left, cost; of an array its members. The view ends with the job; leaving it does not
    end the job.

    Exit code 1 if the job failed. In a pipe, a line for each change. Without JOB: all jobs.
    """
    from trainium_cdk.catalog import Catalog

    jobs = backend(on)
    if job is None:
        if web:
            raise TrnError("--web shows one job. Name it: trn watch JOB --web")
        all_jobs(jobs)
        return
    say_if_sandbox()
    job = whole(jobs, job)
    environment = described(ctx)
    catalog = environment.catalog if environment else Catalog.load()
    status = jobs.status(job)
    again = f"{job} is not affected. To watch it again: trn watch {job}{at(on)}"
    with status_when_interrupted(lambda: again):
        ok = one_job(jobs, status, catalog, web=web, port=port)
    if not ok:
        raise typer.Exit(1)


def one_job(
    jobs: Backend[Any], status: JobStatus, catalog: Catalog, *, web: bool = False, port: int = 0, stay: bool = False
) -> bool:
    """Follow a job or an array until it has ended, or the view is left; whether it has not failed.

    Args:
        stay: show it on the terminal also when it has ended, until it is left.
    """
    if not status.members:
        return _job(jobs, status, catalog, web=web, port=port, stay=stay)
    from trainium_cdk.cli.watch_array import watch as watch_array

    return watch_array(jobs, status, catalog, web=web, port=port, stay=stay)


def _job(jobs: Backend[Any], status: JobStatus, catalog: Catalog, *, web: bool, port: int, stay: bool) -> bool:
    from trainium_cdk.jobs.report.live import Live

    with Live(jobs, status, catalog) as live:
        if web:
            _web(live, jobs, catalog, port)
        elif draws(sys.stdout):
            _terminal(live, jobs, catalog, stay=stay)
        else:

            def state() -> str:
                with live.run() as run:
                    return one_line(run.status)

            screen.lines(live.ended, state)
    live.check()
    with live.run() as run:
        if not stay:
            answer(one_line(run.status))
        return not live.ended.is_set() or run.status.ok


def page_of(live: Live, jobs: Backend[Any], catalog: Catalog, refresh: int | None) -> str:
    """A job as a page. `refresh`: seconds after which a browser loads it again, until it has ended."""
    from trainium_cdk.jobs.report import report

    with live.run() as run:
        again = None if live.ended.is_set() else refresh
        return report([run], jobs.cluster, catalog, time.time(), again, live.told(), sandbox=sandboxed())


def _web(live: Live, jobs: Backend[Any], catalog: Catalog, port: int) -> None:
    from trainium_cdk.cli.web import serve

    with serve(lambda _: page_of(live, jobs, catalog, screen.REFRESH), port) as url:
        answer(url)
        say("open it in a browser on this machine. Ctrl-C ends the page, not the job")
        live.ended.wait()
        say(f"{live.problem or 'the job has ended'}; the page stays until Ctrl-C")
        while True:
            time.sleep(3600)


def _terminal(live: Live, jobs: Backend[Any], catalog: Catalog, *, stay: bool) -> None:
    from trainium_cdk.cli.view import job_view
    from trainium_cdk.jobs.report.curve import METRICS

    order, said = list(METRICS), ""

    def draw(width: int, problem: str, height: int | None = None) -> Any:
        with live.run() as run:
            return job_view(
                run, answered=live.answered, problem=problem, width=width, metrics=order, height=height, said=said
            )

    def press(key: str) -> None:
        nonlocal said
        if key == "m":
            order.append(order.pop(0))
        if key == "r":
            with live.run() as run:
                file = Path(f"report-{run.status.id.replace('/', '-')}.html")
            try:
                write_file(file, page_of(live, jobs, catalog, None), 0o644)
                said = f"the report is {file.resolve()}"
            except TrnError as e:
                said = str(e)

    console = screen.frames(
        lambda width, height: draw(width, live.problem, height), lambda: live.ended.is_set() and not stay, press
    )
    if not stay:
        console.print(draw(console.width, ""))


def all_jobs(jobs: Backend[Any]) -> None:
    """All jobs of a cluster, until they are left."""
    from rich.console import Console
    from rich.live import Live as Screen

    from trainium_cdk.cli.view import jobs_view

    if not draws(sys.stdout):
        raise TrnError("trn watch without a job needs a terminal. Use `trn list`, or name a job")
    found, problem = jobs.list(30), ""
    console = Console()
    draw = screen.marked(lambda width, height: jobs_view(found, problem, width, height))
    with screen.keys() as pressed, Screen(console=console, auto_refresh=False, screen=True) as shown:
        while True:
            until = time.monotonic() + _LIST
            while time.monotonic() < until:
                shown.update(draw(*console.size), refresh=True)
                if pressed(screen.FRAME) in ("q", "\x1b"):
                    return
            try:
                found, problem = jobs.list(30), ""
            except TrnError as e:
                problem = str(e)
