"""The members of an array that are followed in the background: each one's new steps, every few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.backend import Backend
from trainium_cdk.jobs.report.live import Followed
from trainium_cdk.jobs.report.run import AT_ONCE, Run, described, of_members
from trainium_cdk.jobs.status import JobStatus

_PAUSE = 5.0
"""Seconds between two rounds."""


class LiveArray(Followed):
    """An array of jobs.

    Attributes:
        status: the array's newest one.
    """

    def __init__(self, jobs: Backend[Any], status: JobStatus, catalog: Catalog):
        super().__init__(jobs, catalog, self._follow)
        self.status = status
        self._settings = described(jobs, status, catalog).settings
        self._runs: dict[str, Run] = {}
        self._read: dict[str, int] = {}
        self._closed: set[str] = set()

    @contextmanager
    def runs(self) -> Iterator[list[Run]]:
        """The members that have begun; they do not change meanwhile."""
        with self._lock:
            yield list(self._runs.values())

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                status = self._jobs.status(self.status.id)
                with self._lock:
                    self.status = status
                found = of_members(self._jobs, status, self._catalog, self._settings)
                open_ = [run for run in found if run.status.id not in self._closed]
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    list(pool.map(self._look, open_))
                with self._lock:
                    if status.done:
                        self._end()
                        return
                    self._answer()
            except TrnError as e:
                self._failed(e)
                if self.ended.is_set():
                    return
            self._stopped.wait(max(_PAUSE, self._jobs.interval))

    def _look(self, now: Run) -> None:
        """Read what is new of a member's log. Lines of several nodes without an order are all read again."""
        id = now.status.id
        again = not self._jobs.ordered_logs and now.status.nodes > 1
        with self._lock:
            run = now if again else self._runs.get(id, now)
        begin = 0 if again else self._read.get(id, 0)
        chunks = list(self._jobs.logs(id, stage="train", offset=begin))
        if chunks and chunks[0].offset < begin:  # it is another pod's, or was rotated
            begin, chunks = 0, list(self._jobs.logs(id, stage="train"))
        pieces = [chunk.data for chunk in chunks]
        with self._lock:
            run.status, run.now = now.status, time.time()
            run.feed("train", b"".join(pieces))
            if now.status.done:
                run.close()
                self._closed.add(id)
            self._runs[id] = run
        self._read[id] = begin + sum(map(len, pieces))
