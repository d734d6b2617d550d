"""The jobs of a cluster that is to go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from trainium_cdk.jobs import JobStatus

Fate = Literal["cancel", "wait", "ignore"]
"""cancel: jobs are cancelled. wait: until they have ended. ignore: they end with the cluster."""


class Jobs(Protocol):
    """What is needed of a back end."""

    def active(self) -> tuple[JobStatus, ...]: ...

    def cancel(self, id: str) -> JobStatus: ...


def end(
    jobs: Jobs,
    fate: Fate,
    tell: Callable[[str], None],
    *,
    interval: float = 30,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """End what runs or waits, or wait for it."""
    from trainium_cdk.errors import UnknownJob

    running = jobs.active()
    if fate == "cancel":
        for job in running:
            tell(f"cancelling job {job.id} ({job.state})")
            with contextlib.suppress(UnknownJob):  # its record is damaged or gone: nothing more is known of it
                jobs.cancel(job.id)
    while fate == "wait" and running:
        tell(f"waiting for {len(running)} jobs: {', '.join(job.id for job in running[:5])}")
        sleep(interval)
        running = jobs.active()
