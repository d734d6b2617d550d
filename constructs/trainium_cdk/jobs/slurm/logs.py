"""Logs of a job's stages: read, and followed until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trainium_cdk.jobs.backend import Backend, Changes, check_log
from trainium_cdk.jobs.patience import FOLLOWING, ONE_QUESTION, Patience
from trainium_cdk.jobs.status import JobStatus, LogChunk, last_begun

LOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a log in one response. Through SSM, large responses come through the stack's bucket."""


class Piece(NamedTuple):
    """A piece of a log, with the job's status and the log's size just before it was read."""

    chunk: LogChunk
    status: JobStatus
    size: int


Ask = Callable[[str, int, "int | None"], Piece]
"""Asks for the next piece of a job's log: of a stage (empty: the last one that has a log), from a byte on, or from so many last lines on."""


def read(
    backend: Backend[Any],
    ask: Ask,
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
        yield from _read(backend, ask, stage, node, offset, tail, notify)
        return
    status = backend.status(id)
    check_log(status, stage, node)
    names = [stage] if stage else [s.name for s in status.stages]
    if tail is not None:
        names = names[names.index(stage or last_begun(status)) :]
    for name in names:
        yield from _follow(backend, ask, name, offset if stage else 0, tail, notify)
        tail = None


def _read(
    backend: Backend[Any],
    ask: Ask,
    stage: str | None,
    node: int | None,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    """What there is now: a job that writes faster than it is read would never end it."""
    patience = Patience(ONE_QUESTION, sleep=backend.sleep)

    def piece_of(name: str) -> Piece:
        return patience.ask(lambda: ask(name, offset, tail))

    piece = piece_of(stage or "")
    check_log(piece.status, stage, node)
    name = piece.chunk.stage
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
        piece = piece_of(name)


def _follow(
    backend: Backend[Any],
    ask: Ask,
    stage: str,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    interval = backend.interval
    patience = Patience(FOLLOWING, first=interval, sleep=backend.sleep)
    while True:
        chunk, status, _ = patience.ask(lambda: ask(stage, offset, tail))  # noqa: B023  called at once
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
