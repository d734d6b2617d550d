"""The operations of a scheduler on jobs: `Backend`, which each engine implements (`slurm/backend.py`, `kubernetes/backend.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol, TypeVar

from trainium_cdk.errors import JobError, JobTimeout, TransportError
from trainium_cdk.jobs.models import AnyJob
from trainium_cdk.jobs.patience import FOLLOWING, Patience
from trainium_cdk.jobs.status import JobStatus, LogChunk, Submitted
from trainium_cdk.jobs.submission import Submission
from trainium_cdk.outputs import ClusterOutputs

S = TypeVar("S", bound=Submission)


class Board(Protocol):
    """A running TensorBoard."""

    @property
    def url(self) -> str:
        """Its address on this machine."""
        ...

    def wait(self) -> None:
        """Wait until it ends."""
        ...


class Backend(Protocol[S]):
    """A scheduler that runs jobs: all that `trn` needs. Every method may raise `TransportError`, those with an id also
    `UnknownJob`."""

    ordered_logs: ClassVar[bool]
    """The lines of several nodes come in one order, so that an offset can be continued from."""

    @property
    def cluster(self) -> ClusterOutputs: ...

    def render(self, job: AnyJob, token: str | None = None) -> S:
        """What `submit` would send. Raises `JobError` if the job does not fit the cluster."""
        ...

    def send(self, submission: S) -> Submitted:
        """Send a rendered submission. Raises `SubmitError` if the cluster rejects it."""
        ...

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted:
        """Render and send. Repeated with the same token, the job is submitted once."""
        ...

    def status(self, id: str) -> JobStatus: ...

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs, newest first."""
        ...

    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait."""
        ...

    def cancel(self, id: str) -> JobStatus: ...

    def wait(
        self, id: str, timeout: float | None = None, changed: Callable[[JobStatus], None] | None = None
    ) -> JobStatus:
        """Wait until the job has ended. Raises `JobTimeout` after `timeout` seconds."""
        ...

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

    def node_of_rank(self, id: str, rank: int) -> int:
        """The job's node (0, 1, ...) on which a training process runs."""
        ...

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        """Run a command on a node of the job, with this terminal; its exit code. Raises `JobError` if that is not possible."""
        ...

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Board]:
        """Serve the job's TensorBoard at a port of this machine. Raises `JobError` if that is not possible."""
        ...


def check_log(status: JobStatus, stage: str | None, node: int | None) -> None:
    """Check that a job has the stage and the node whose log is requested.

    Raises:
        JobError: it does not.
    """
    names = [s.name for s in status.stages]
    if stage is not None and stage not in names:
        raise JobError(f"{status.id} has no stage {stage!r}; it has {', '.join(names)}. Choose one of them")
    if node is not None and not 0 <= node < status.nodes:
        raise JobError(f"{status.id} has nodes 0 to {status.nodes - 1}, not {node}. Choose one of them")
    if stage == "prepare" and node:
        raise JobError(f"the stage prepare runs on node 0 only, not on node {node}. Leave out the node")


class Followed(Protocol):
    def status(self, id: str) -> JobStatus: ...


def wait(
    backend: Followed,
    id: str,
    timeout: float | None = None,
    changed: Callable[[JobStatus], None] | None = None,
    *,
    interval: float = 4.0,
    sleep: Callable[[float], None] = time.sleep,
) -> JobStatus:
    """Wait until a job of any back end has ended. Requests are repeated while the cluster does not respond.

    Args:
        timeout: seconds; None for no limit.
        changed: called with the status whenever it has changed.
        interval: seconds between two requests; grows to 15 while nothing changes.

    Raises:
        JobTimeout: it has not ended within `timeout`.
        TransportError: the cluster has not responded for 15 minutes, or the error is permanent.
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
