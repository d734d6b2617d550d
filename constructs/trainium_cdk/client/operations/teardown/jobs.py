"""Ending the jobs of a cluster before its deletion."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.status import JobStatus

Fate = Literal["cancel", "wait", "ignore"]
"""cancel: cancel the jobs. wait: wait until they have ended. ignore: they end with the cluster."""


class JobCanceller(Protocol):
    """The part of a backend that is used here."""

    def active(self) -> tuple[JobStatus, ...]: ...

    def cancel(self, id: str) -> JobStatus: ...


def end(
    jobs: JobCanceller,
    fate: Fate,
    say: Callable[[str], None],
    *,
    interval: float = 30,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Cancel the jobs that run or wait, or wait for their end. If one cannot be cancelled, report the reason, and cancel the next one.

    Raises:
        TransportError: the cluster does not respond.
    """
    from trainium_cdk.errors import TransportError, TrnError, UnknownJob

    running = jobs.active()
    if fate == "cancel":
        for job in running:
            say(f"cancelling job {job.id} ({job.state})")
            try:
                with contextlib.suppress(UnknownJob):  # its record is damaged or deleted
                    jobs.cancel(job.id)
            except TrnError as e:
                if isinstance(e, TransportError):
                    jobs.active()  # does the cluster respond at all?
                say(f"job {job.id} was not cancelled, and ends with the cluster: {e}")
    while fate == "wait" and running:
        say(f"waiting for {counted(len(running), 'job')}: {', '.join(job.id for job in running[:5])}")
        sleep(interval)
        running = jobs.active()
