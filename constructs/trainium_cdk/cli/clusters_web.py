"""`trn clusters --web`: the page of all clusters, and from it those of jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from trainium_cdk._aws import sandboxed
from trainium_cdk.cli.output import answer, say

if TYPE_CHECKING:
    from trainium_cdk.jobs.report.live import Followed
    from trainium_cdk.jobs.report.live_clusters import LiveClusters

_UNSEEN = 60.0
"""Seconds after which a job whose page is not loaded any more is not followed."""


def show(live: LiveClusters, port: int) -> None:
    """Serve the page until Ctrl-C."""
    from trainium_cdk.cli.web import serve
    from trainium_cdk.jobs.report.board_page import page

    opened, sandbox = Opened(live), sandboxed()

    def made(asked: Mapping[str, str]) -> str:
        if "job" in asked:
            return opened.page(asked.get("on", ""), asked.get("team", ""), asked["job"])
        opened.close_unseen()
        shown = live.board()
        return page(shown.clusters, shown.notes, time.time(), asked, complete=shown.complete, sandbox=sandbox)

    with serve(made, port) as url:
        answer(url)
        say("open it in a browser on this machine. Ctrl-C ends the page, not the jobs")
        while True:
            time.sleep(3600)


class Opened:
    """The jobs whose pages are open: each is followed until its page has not been loaded for a minute."""

    def __init__(self, live: LiveClusters):
        self._clusters, self._lock = live, Lock()
        self._open: dict[tuple[str, str, str], tuple[float, Followed, Callable[[], str]]] = {}

    def page(self, cluster: str, team: str, id: str) -> str:
        """The page of a job or an array.

        Raises:
            TrnError: it cannot be asked for, or there is none.
        """
        key = (cluster, team, id)
        self.close_unseen()
        if draw := self._seen(key):
            return draw()
        new, draw = self._begin(*key)  # without the lock: a cluster that hangs delays its own pages alone
        with self._lock:
            _, followed, draw = self._open.setdefault(key, (time.monotonic(), new, draw))
        if followed is not new:  # another request was faster
            new.__exit__()
        return draw()

    def _seen(self, key: tuple[str, str, str]) -> Callable[[], str] | None:
        """What draws the page of one that is followed."""
        with self._lock:
            if key not in self._open:
                return None
            _, followed, draw = self._open[key]
            self._open[key] = (time.monotonic(), followed, draw)
            return draw

    def close_unseen(self) -> None:
        """Stop following those whose page is closed."""
        with self._lock:
            for key, (looked, followed, _) in list(self._open.items()):
                if time.monotonic() - looked > _UNSEEN:
                    followed.__exit__()
                    del self._open[key]

    def _begin(self, cluster: str, team: str, id: str) -> tuple[Followed, Callable[[], str]]:
        from trainium_cdk.catalog import Catalog
        from trainium_cdk.cli import screen, watch, watch_array
        from trainium_cdk.jobs.report.live import Live
        from trainium_cdk.jobs.report.live_array import LiveArray

        jobs, catalog = self._clusters.way(cluster, team), Catalog.load()
        status = jobs.status(id)
        if status.members:
            array = LiveArray(jobs, status, catalog).__enter__()
            return array, lambda: watch_array.page_of(array, jobs, catalog)
        one = Live(jobs, status, catalog).__enter__()
        return one, lambda: watch.page_of(one, jobs, catalog, screen.REFRESH)
