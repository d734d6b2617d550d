"""What a scheduler must do for jobs. Slurm does it in `slurm.py`; another one implements the same five verbs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from trainium_cdk.errors import JobTimeout, TransportError
from trainium_cdk.jobs.models import AnyJob
from trainium_cdk.jobs.patience import FOLLOWING, Patience

ACTIVE = frozenset({"PENDING", "RUNNING"})


@dataclass(frozen=True)
class Stage:
    """One stage of a job: prepare, precompile or train.

    Attributes:
        number: the scheduler's own id of it.
        state: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, LOST (the scheduler
            does not know it, and it has not run to its end) or UNKNOWN.
        reason: why it is in that state, in words; empty where there is nothing to say.
        nodes: the nodes it has or had.
        exit_code: of its script; None while unknown.
        started, ended: seconds since 1970; None while unknown.
    """

    name: str
    number: str
    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int | None = None
    started: int | None = None
    ended: int | None = None


@dataclass(frozen=True)
class Expected:
    """A published throughput of the very same job, to compare a run with."""

    sequences_per_second: float
    source: str

    @classmethod
    def of(cls, said: Any) -> Expected | None:
        """As a job's record has it; None where that is no such thing."""
        try:
            return cls(float(said["sequences_per_second"]), str(said["source"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        return f"{self.sequences_per_second:,.0f} sequences/s ({self.source})"


@dataclass(frozen=True)
class JobStatus:
    """A job and its stages, in their order."""

    id: str
    kind: str
    queue: str
    instance_type: str
    nodes: int
    global_batch_size: int | None
    stages: tuple[Stage, ...]
    directory: str = ""
    expected: Expected | None = None

    @property
    def current(self) -> Stage:
        """The stage that tells how the job is: one that is lost, else the first that is not completed, else the last."""
        lost = next((s for s in self.stages if s.state == "LOST"), None)
        return lost or next((s for s in self.stages if s.state != "COMPLETED"), self.stages[-1])

    @property
    def state(self) -> str:
        return self.current.state

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it: where a stage is lost, those before it may still run."""
        return self.state == "LOST" or all(s.state not in ACTIVE for s in self.stages)

    @property
    def ok(self) -> bool:
        return all(s.state == "COMPLETED" for s in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {
            **asdict(self),
            "stages": [asdict(s) for s in self.stages],
            "state": self.state,
            "done": self.done,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Submitted:
    """A job that is on the cluster.

    Attributes:
        existing: it was there already, from an earlier submission with the same token.
        stages: the scheduler's ids by stage. `prepare` is missing where all was fetched before.
        resubmitted: stages that the scheduler had lost, and that were submitted again now.
    """

    id: str
    existing: bool
    stages: dict[str, str]
    directory: str
    resubmitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogChunk:
    """A piece of a log: `data` begins at byte `offset` of the stage's log, and `next_offset` is where to go on."""

    stage: str
    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


class Backend(Protocol):
    """A scheduler that runs jobs. Every verb may raise `TransportError`; those with an id also `UnknownJob`."""

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted: ...

    def status(self, id: str) -> JobStatus: ...

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]: ...

    def active(self) -> tuple[JobStatus, ...]: ...

    def cancel(self, id: str) -> JobStatus: ...

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        follow: bool = False,
        offset: int = 0,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]: ...


def wait(
    backend: Backend,
    id: str,
    timeout: float | None = None,
    changed: Callable[[JobStatus], None] | None = None,
    *,
    interval: float = 4.0,
    sleep: Callable[[float], None] = time.sleep,
) -> JobStatus:
    """Wait until a job of any back end has ended. A cluster that does not answer for a while is asked again.

    Args:
        timeout: seconds; None for as long as it takes.
        changed: called with the status whenever it has changed.
        interval: seconds between two looks; more while nothing changes, 15 at most.

    Raises:
        JobTimeout: it has not ended within `timeout`.
        TransportError: the cluster has not answered for a quarter of an hour, or asking again is of no use.
    """
    patience = Patience(FOLLOWING, first=interval, sleep=sleep)
    end = None if timeout is None else time.monotonic() + timeout
    last: JobStatus | None = None
    pause = interval
    while True:
        try:
            status = backend.status(id)
        except TransportError as e:
            if end is not None and time.monotonic() > end:
                raise
            patience.failed(e)
            continue
        patience.answered()
        if changed and status != last:
            changed(status)
        pause = interval if status != last else min(pause * 1.3, 15.0)
        last = status
        if status.done:
            return status
        if end is not None and time.monotonic() + pause > end:
            raise JobTimeout(f"{id} has not ended within {timeout:.0f} s; it is {status.state}")
        sleep(pause)
