"""`trn watch`: a live view of a job, or of all jobs, in the terminal or a browser."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.named import whole
from trainium_cdk.cli.options import DEFAULT_STACK, ClusterFile, EnvFile, Local, Region, Stack, at, backend, described
from trainium_cdk.cli.output import answer, one_line, say, status_when_interrupted, write_file
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs import Backend
    from trainium_cdk.jobs.report.live import Live

_REFRESH = 5
"""Seconds after which a browser loads the page again."""
_FRAME = 0.5
"""Seconds between two frames in the terminal."""
_LIST = 10.0
"""Seconds between two requests for all jobs."""


def watch(
    ctx: typer.Context,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="Id of the job, a beginning of it that is enough, or `latest`. Default: all jobs.")] = None,
    web: Annotated[bool, typer.Option("--web", help="In a browser: serve a page at this machine, and print its address.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --web. Default: a free one.")] = 0,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
) -> None:  # fmt: skip
    """Follow a job, or an array, live: stages, compilation, steps, curves, time left, cost. Ends with the job; leaving does not end the job.

    Exit code 1 if the job failed. In a pipe, a line for each change. Without JOB: all jobs.
    """
    from trainium_cdk.catalog import Catalog

    jobs = backend(stack, region, local, cluster)
    if job is None:
        if web:
            raise TrnError("--web shows one job. Name it: trn watch JOB --web")
        _all(jobs)
        return
    from trainium_cdk.jobs.report.live import Live

    job = whole(jobs, job)
    environment = described(ctx)
    catalog = environment.catalog if environment else Catalog.load()
    status = jobs.status(job)
    if status.members:
        from trainium_cdk.cli.watch_array import watch as watch_array

        again = f"{job} is not affected. To watch it again: trn watch {job}{at(stack, region)}"
        with status_when_interrupted(lambda: again):
            ok = watch_array(jobs, status, catalog, web=web, port=port, screen=_screen)
        if not ok:
            raise typer.Exit(1)
        return
    with (
        status_when_interrupted(
            lambda: f"{job} is not affected. To watch it again: trn watch {job}{at(stack, region)}"
        ),
        Live(jobs, job, catalog) as live,
    ):
        if web:
            _web(live, jobs, catalog, port)
        elif sys.stdout.isatty():
            _terminal(live, jobs, catalog)
        else:
            _lines(live)
    with live.run() as run:
        answer(one_line(run.status))
        if live.ended.is_set() and not run.status.ok:
            raise typer.Exit(1)


def _page(live: Live, jobs: Backend[Any], catalog: Catalog, refresh: int | None) -> str:
    from trainium_cdk.jobs.report import report

    with live.run() as run:
        return report([run], jobs.cluster, catalog, time.time(), None if run.status.done else refresh)


def _web(live: Live, jobs: Backend[Any], catalog: Catalog, port: int) -> None:
    from trainium_cdk.cli.web import serve

    with serve(lambda: _page(live, jobs, catalog, _REFRESH), port) as url:
        answer(url)
        say("open it in a browser on this machine. Ctrl-C ends the page, not the job")
        live.ended.wait()
        say("the job has ended; the page stays until Ctrl-C")
        while True:
            time.sleep(3600)


def _lines(live: Live) -> None:
    last = ""
    while not live.ended.wait(1):
        with live.run() as run:
            text = one_line(run.status)
        if text != last:
            answer(text)
        last = text


def _terminal(live: Live, jobs: Backend[Any], catalog: Catalog) -> None:
    from rich.console import Console
    from rich.live import Live as Screen

    from trainium_cdk.cli.view import job_view
    from trainium_cdk.jobs.report.curve import METRICS

    console, order = Console(), list(METRICS)
    with _keys() as pressed, Screen(console=console, auto_refresh=False, screen=True) as screen:
        while not live.ended.is_set():
            with live.run() as run:
                made = job_view(run, answered=live.answered, problem=live.problem, width=console.width, metrics=order)
            screen.update(made, refresh=True)
            key = pressed(_FRAME)
            if key in ("q", "\x1b"):
                break
            if key == "m":
                order = [*order[1:], order[0]]
            if key == "r":
                with live.run() as run:
                    file = Path(f"report-{run.status.id}.html")
                write_file(file, _page(live, jobs, catalog, None), 0o644)
    with live.run() as run:
        console.print(job_view(run, answered=live.answered, problem="", width=console.width, metrics=order))


def _screen(draw: Callable[[int], Any], over: Callable[[], bool]) -> None:
    """Draw frames of a width until it is over, or left."""
    from rich.console import Console
    from rich.live import Live as Screen

    console = Console()
    with _keys() as pressed, Screen(console=console, auto_refresh=False, screen=True) as screen:
        while not over():
            screen.update(draw(console.width), refresh=True)
            if pressed(_FRAME) in ("q", "\x1b"):
                break
    console.print(draw(console.width))


def _all(jobs: Backend[Any]) -> None:
    from rich.console import Console
    from rich.live import Live as Screen

    from trainium_cdk.cli.view import jobs_view

    if not sys.stdout.isatty():
        raise TrnError("trn watch without a job needs a terminal. Use `trn list`, or name a job")
    found, problem = jobs.list(30), ""
    with _keys() as pressed, Screen(console=Console(), auto_refresh=False, screen=True) as screen:
        while True:
            screen.update(jobs_view(found, problem), refresh=True)
            until = time.monotonic() + _LIST
            while time.monotonic() < until:
                if pressed(_FRAME) in ("q", "\x1b"):
                    return
            try:
                found, problem = jobs.list(30), ""
            except TrnError as e:
                problem = str(e)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Waits so many seconds for a key, and returns it; empty if none was pressed, or keys cannot be read."""
    if not sys.stdin.isatty() or os.name != "posix":

        def none(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield none
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
