"""`trn watch` of an array: all of its members."""

from __future__ import annotations

import sys
import time
from typing import Any

from trainium_cdk._aws import sandboxed
from trainium_cdk.catalog import Catalog
from trainium_cdk.cli import screen
from trainium_cdk.cli.output import answer, one_line, say
from trainium_cdk.cli.terminal import draws
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import Backend, JobStatus
from trainium_cdk.jobs.report.live_array import LiveArray


def watch(jobs: Backend[Any], status: JobStatus, catalog: Catalog, *, web: bool, port: int, stay: bool) -> bool:
    """Follow an array until it has ended, or the view is left; whether it has not failed.

    Args:
        web: serve a page at a port of this machine (0: a free one) instead.
        stay: show it on the terminal also when it has ended, until it is left.
    """
    with LiveArray(jobs, status, catalog) as live:
        if web:
            _serve(live, jobs, catalog, port)
        elif draws(sys.stdout):
            from trainium_cdk.cli.view import array_view

            def draw(width: int, height: int | None = None) -> Any:
                with live.runs() as runs:
                    return array_view(
                        live.status,
                        runs,
                        now=time.time(),
                        answered=live.answered,
                        problem=live.problem,
                        width=width,
                        height=height,
                    )

            console = screen.frames(draw, lambda: live.ended.is_set() and not stay)
            if not stay:
                console.print(draw(console.width))
        else:
            screen.lines(live.ended, lambda: one_line(live.status))
        live.check()
        if not stay:
            answer(one_line(live.status))
        return not live.ended.is_set() or live.status.ok


def _serve(live: LiveArray, jobs: Backend[Any], catalog: Catalog, port: int) -> None:
    from trainium_cdk.cli.web import serve

    with serve(lambda _: page_of(live, jobs, catalog), port) as url:
        answer(url)
        say("open it in a browser on this machine. Ctrl-C ends the page, not the array")
        while True:
            time.sleep(3600)


def page_of(live: LiveArray, jobs: Backend[Any], catalog: Catalog) -> str:
    """An array as a page.

    Raises:
        TrnError: no member has begun yet.
    """
    from trainium_cdk.jobs.report import report

    with live.runs() as runs:
        if not runs:
            live.check()
            raise TrnError(f"no member of {live.status.id} has begun yet. Load the page again later")
        again = None if live.ended.is_set() else screen.REFRESH
        return report(runs, jobs.cluster, catalog, time.time(), again, live.told(), sandbox=sandboxed())
