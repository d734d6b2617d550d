"""Logs of a job's stages: read, and followed until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from trainium_cdk.jobs.backend import Changes, check_log
from trainium_cdk.jobs.patience import FOLLOWING, ONE_QUESTION, Patience
from trainium_cdk.jobs.slurm.transport import Transport
from trainium_cdk.jobs.status import JobStatus, LogChunk

LOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a log in one response. Through SSM, large responses come through the stack's bucket."""


class Piece(NamedTuple):
    """A piece of a log, with the job's status and the log's size just before it was read."""

    chunk: LogChunk
    status: JobStatus
    size: int


class LogSource(Protocol):
    """The part of the backend that reads logs."""

    sleep: Callable[[float], None]

    @property
    def transport(self) -> Transport: ...

    def status(self, id: str) -> JobStatus: ...

    def log_piece(self, id: str, stage: str, node: int | None, offset: int, most: int) -> Piece: ...


def read(
    source: LogSource,
    id: str,
    *,
    stage: str | None,
    node: int | None,
    follow: bool,
    offset: int,
    changed: Callable[[JobStatus], None] | None,
) -> Iterator[LogChunk]:
    """See `SlurmBackend.logs`."""
    status = source.status(id)
    check_log(status, stage, node)
    names = [s.name for s in status.stages]
    if follow:
        notify = Changes(changed)
        for name in [stage] if stage else names:
            yield from _follow(source, id, name, node, offset if stage else 0, notify)
        return
    yield from _read(source, id, stage or last_begun(status), node, offset)


def last_begun(status: JobStatus) -> str:
    """The last stage that has a log, else the last of all."""
    begun = [s.name for s in status.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and not s.nodes)]
    return (begun or [s.name for s in status.stages])[-1]


def _read(source: LogSource, id: str, stage: str, node: int | None, offset: int) -> Iterator[LogChunk]:
    """What there is now: a job that writes faster than it is read would never end it."""
    patience, end = Patience(ONE_QUESTION, sleep=source.sleep), -1
    while True:
        chunk, _, size = patience.ask(lambda: source.log_piece(id, stage, node, offset, LOG_BYTES))  # noqa: B023  called at once
        end = size if end < 0 else end
        data = chunk.data[: max(0, end - offset)]
        if data or chunk.offset < offset:
            yield LogChunk(stage, chunk.offset, data)
        offset += len(data)
        if not data or offset >= end:
            return


def _follow(
    source: LogSource, id: str, stage: str, node: int | None, offset: int, notify: Changes
) -> Iterator[LogChunk]:
    interval = source.transport.interval
    patience = Patience(FOLLOWING, first=interval, sleep=source.sleep)
    while True:
        chunk, status, _ = patience.ask(lambda: source.log_piece(id, stage, node, offset, LOG_BYTES))  # noqa: B023  called at once
        active = status.active(stage)
        if active or not chunk.data:  # that it has ended comes after its last lines
            notify(status)
        if chunk.data:
            yield chunk
            offset = chunk.next_offset
        if not chunk.data and not active:
            return
        if active and len(chunk.data) < LOG_BYTES:
            source.sleep(interval)
