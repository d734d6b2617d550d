"""A job that is followed in the background: what its logs and its status tell, as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import TrnError, UnknownJob
from trainium_cdk.jobs.backend import Backend
from trainium_cdk.jobs.report.run import Run, described, explain
from trainium_cdk.jobs.report.text import late
from trainium_cdk.jobs.status import JobStatus

_PAUSE = 5.0
"""Seconds before a connection that was lost is tried again."""


class Followed:
    """What is followed in the background, until it has ended.

    Attributes:
        answered: when the cluster answered last, in seconds since 1970.
        problem: why it does not answer now; empty if it does.
        ended: set when it has ended and all of its logs are read, or it no longer exists.
    """

    def __init__(self, jobs: Backend[Any], catalog: Catalog, *threads: Callable[[], None]):
        self._jobs, self._catalog = jobs, catalog
        self._lock = threading.Lock()
        self.answered, self.problem = time.time(), ""
        self.ended, self._stopped = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=t, daemon=True) for t in threads]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def told(self) -> str:
        """That the cluster does not answer, or that there is no such job any more; empty if all is well."""
        return self.problem if self.ended.is_set() else late(time.time() - self.answered, self.problem)

    def check(self) -> None:
        """Raises UnknownJob: it no longer exists."""
        if self.ended.is_set() and self.problem:
            raise UnknownJob(self.problem)

    def _answer(self) -> None:
        self.answered, self.problem = time.time(), ""

    def _end(self) -> None:
        """With the lock."""
        self._answer()
        self.ended.set()

    def _failed(self, error: TrnError) -> None:
        with self._lock:
            if not self.ended.is_set():
                self.problem = str(error)
            if isinstance(error, UnknownJob):
                self.ended.set()


class Live(Followed):
    """One job. Reading begins with the first stage's log, so that its whole course is there."""

    def __init__(self, jobs: Backend[Any], status: JobStatus, catalog: Catalog):
        super().__init__(jobs, catalog, self._follow, self._look)
        self._run = described(jobs, status, catalog)

    @contextmanager
    def run(self) -> Iterator[Run]:
        """The job as it is now; it does not change meanwhile."""
        with self._lock:
            self._run.now = time.time()
            yield self._run

    def _look(self) -> None:
        """Ask for the status regularly: it also tells whether the cluster answers."""
        pause = max(_PAUSE, self._jobs.interval)
        while not self._stopped.wait(pause) and not self.ended.is_set():
            try:
                status = self._jobs.status(self._run.status.id)
            except TrnError as e:
                self._failed(e)
                continue
            with self._lock:
                if self.ended.is_set():  # the answer is older than the last one
                    return
                self._run.status = status
                self._answer()

    def _follow(self) -> None:
        """Read the logs to their end; from the beginning again, if the connection was lost for good."""
        id = self._run.status.id
        while not self._stopped.is_set():
            try:
                for chunk in self._jobs.logs(id, follow=True):
                    with self._lock:
                        self._run.feed(chunk.stage, chunk.data)
                    self.answered = time.time()
                    if self._stopped.is_set():
                        return
                status = self._jobs.status(id)
                with self._lock:
                    self._run.close()
                    self._run.status = status
                if status.done:
                    explain(self._jobs, self._run)
                    with self._lock:
                        self._end()
                    return
            except TrnError as e:
                self._failed(e)
                if self.ended.is_set():
                    return
                self._stopped.wait(_PAUSE)
            with self._lock:
                run = self._run
                self._run = Run(run.status, run.price, run.settings, planned_steps=run.planned_steps)
