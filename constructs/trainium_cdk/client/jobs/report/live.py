"""Jobs that are followed: each round reads their states, and what is new of their logs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainium_cdk.client.jobs.backend import Backend
from trainium_cdk.client.jobs.report.run import AT_ONCE, Run, begun, described, of_members
from trainium_cdk.client.jobs.report.text import late
from trainium_cdk.client.jobs.status import ACTIVE, JobStatus
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.errors import TrnError, UnknownJob

PAUSE = 5.0
"""Least seconds between two rounds."""


class Live:
    """Jobs as they were at the last round.

    Attributes:
        statuses: of the jobs. runs: they, and of an array its members that have begun, with what their logs tell.
        pause: seconds between two rounds.
        ended: whether all have ended, or one no longer exists; nothing changes any more.
    """

    def __init__(self, jobs: Backend, ids: Sequence[str], catalog: Catalog):
        self._jobs, self._ids, self._catalog = jobs, list(dict.fromkeys(ids)), catalog
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._runs: dict[str, Run] = {}
        self._read: dict[tuple[str, str], int] = {}
        self._closed: set[tuple[str, str]] = set()
        self._answered, self._problem = time.time(), ""
        self.statuses: list[JobStatus] = []
        self.pause = max(PAUSE, jobs.interval)
        self.ended = False

    @property
    def runs(self) -> list[Run]:
        return list(self._runs.values())

    @property
    def problem(self) -> str:
        """Return why the figures may be old; empty if they are not."""
        return self._problem if self.ended else late(time.time() - self._answered, self._problem)

    def look(self) -> None:
        """Read all jobs once. If the cluster does not answer, that is `problem`, and the next round tries again."""
        try:
            self.statuses = [self._jobs.status(id, progress=True) for id in self._ids]
            found = [run for status in self.statuses for run in self._described(status)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                self._runs = {run.status.id: run for run in pool.map(self._follow, found)}
            self._answered, self._problem = time.time(), ""
            self.ended = all(status.done for status in self.statuses)
        except UnknownJob as e:
            self._problem, self.ended = str(e), True
        except TrnError as e:
            self._problem = str(e)

    def _described(self, status: JobStatus) -> list[Run]:
        settings = self._settings.get(status.id)
        shared = described(self._jobs, status, self._catalog, settings)
        self._settings[status.id] = shared.settings
        return of_members(self._jobs, status, self._catalog, shared.settings) if status.members else [shared]

    def _follow(self, now: Run) -> Run:
        """A job with what is new in its log. Lines of several nodes without an order are all read again."""
        again = not self._jobs.ordered_logs and now.status.nodes > 1
        run = now if again else self._runs.get(now.status.id, now)
        run.status = now.status
        for stage in begun(run.status):
            key = run.status.id, stage
            if stage != "prepare" and (again or key not in self._closed):
                state = next(one.state for one in run.status.stages if one.name == stage)
                self._read[key] = self._feed(run, stage, 0 if again else self._read.get(key, 0))
                if state not in ACTIVE:
                    self._closed.add(key)
        run.looked(time.time())
        if run.status.done:
            run.close()
        return run

    def _feed(self, run: Run, stage: str, begin: int) -> int:
        """Read a log, starting at this byte; returns where it ends now."""
        chunks = list(self._jobs.logs(run.status.id, stage=stage, offset=begin))
        if chunks and chunks[0].offset < begin:  # it is another pod's, or was rotated
            begin, chunks = 0, list(self._jobs.logs(run.status.id, stage=stage))
        for chunk in chunks:
            run.feed(stage, chunk.data)
        return begin + sum(len(chunk.data) for chunk in chunks)
