"""Logs of a job's stages: read, and followed until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from trainium_cdk.jobs.backend import Changes, check_log
from trainium_cdk.jobs.patience import FOLLOWING, ONE_QUESTION, Patience
from trainium_cdk.jobs.status import JobStatus, LogChunk

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.backend import SlurmBackend

LOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a log in one response. Through SSM, large responses come through the stack's bucket."""


class Piece(NamedTuple):
    """A piece of a log, with the job's status and the log's size just before it was read."""

    chunk: LogChunk
    status: JobStatus
    size: int


def read(
    backend: SlurmBackend,
    id: str,
    *,
    stage: str | None,
    node: int | None,
    follow: bool,
    offset: int,
    tail: int | None,
    changed: Callable[[JobStatus], None] | None,
) -> Iterator[LogChunk]:
    """See `SlurmBackend.logs`."""
    notify = Changes(changed)
    if not follow:
        yield from _read(backend, id, stage, node, offset, tail, notify)
        return
    status = backend.status(id)
    check_log(status, stage, node)
    names = [stage] if stage else [s.name for s in status.stages]
    if tail is not None:
        names = names[names.index(stage or last_begun(status)) :]
    for name in names:
        yield from _follow(backend, id, name, node, offset if stage else 0, tail, notify)
        tail = None


def last_begun(status: JobStatus) -> str:
    """The last stage that has a log, else the last of all."""
    begun = [s.name for s in status.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and not s.nodes)]
    return (begun or [s.name for s in status.stages])[-1]


def _read(
    backend: SlurmBackend,
    id: str,
    stage: str | None,
    node: int | None,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    """What there is now: a job that writes faster than it is read would never end it."""
    patience = Patience(ONE_QUESTION, sleep=backend.sleep)

    def ask(name: str) -> Piece:
        return patience.ask(lambda: backend.log_piece(id, name, node, offset, LOG_BYTES, tail))

    piece = ask(stage or "train")  # most often it has begun: the answer has the status, too
    check_log(piece.status, stage, node)
    name = stage or last_begun(piece.status)
    if name != piece.chunk.stage:
        piece = ask(name)
    notify(piece.status)
    end = piece.size
    if tail is not None:
        offset, tail = max(offset, piece.chunk.offset), None
    while True:
        data = piece.chunk.data[: max(0, end - offset)]
        if data or piece.chunk.offset < offset:
            yield LogChunk(name, piece.chunk.offset, data)
        offset += len(data)
        if not data or offset >= end:
            return
        piece = ask(name)


def _follow(
    backend: SlurmBackend,
    id: str,
    stage: str,
    node: int | None,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    interval = backend.transport.interval
    patience = Patience(FOLLOWING, first=interval, sleep=backend.sleep)
    while True:
        chunk, status, _ = patience.ask(lambda: backend.log_piece(id, stage, node, offset, LOG_BYTES, tail))  # noqa: B023  called at once
        active = status.active(stage)
        if active or not chunk.data:  # that it has ended comes after its last lines
            notify(status)
        if tail is not None:
            offset, tail = max(offset, chunk.offset), None
        if chunk.data:
            yield chunk
            offset = chunk.next_offset
        if not chunk.data and not active:
            return
        if active and len(chunk.data) < LOG_BYTES:
            backend.sleep(interval)
