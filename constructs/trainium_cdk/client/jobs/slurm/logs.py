"""Logs of a job's stages: read, and followed until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from trainium_cdk.client.jobs import joined
from trainium_cdk.client.jobs.backend import FOLLOWING, ONE_QUESTION, Backend, Changes, Patience, check_log
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, last_begun
from trainium_cdk.runner.requests import Log

LOG_BYTES = 16 * 1024 * 1024
"""Maximum bytes of a log in one response. Through SSM, large responses come through the stack's bucket."""


class Ask(Protocol):
    """Asks for the next piece of a job's log: of a stage (empty: the last one that has a log), from a byte, or from the last so many lines; of an
    array, from these bytes of its members."""

    def __call__(self, of: str, begin: int, last: int | None, members: Mapping[str, int] = ...) -> Log: ...


def read(
    backend: Backend,
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
    check_log(status, stage, node, offset)
    if status.members and stage != "prepare":
        yield from joined.read(backend, _rounds(ask), follow=True, tail=tail, notify=notify)
        return
    names = [stage] if stage else [s.name for s in status.stages]
    if tail is not None:
        names = names[names.index(stage or last_begun(status)) :]
    for name in names:
        yield from _follow(backend, ask, name, offset if stage else 0, tail, notify)
        tail = None


def _rounds(ask: Ask) -> joined.Ask:
    return lambda begin, tail: _round(ask("train", 0, tail, begin))


def _round(log: Log) -> joined.Round:
    members = log.members or ()
    chunks = [LogChunk(log.stage, one.offset, one.data, one.member) for one in members]
    return joined.Round(log.job, chunks, {one.member: one.size for one in members})


def _read(
    backend: Backend,
    ask: Ask,
    stage: str | None,
    node: int | None,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    """Yield the log up to its present end. A job that writes faster than it is read would never end it."""
    patience = Patience(ONE_QUESTION, sleep=backend.sleep)

    def ask_for(name: str) -> Log:
        return patience.ask(lambda: ask(name, offset, tail))

    log = ask_for(stage or "")
    check_log(log.job, stage, node, offset)
    if log.members is not None:
        yield from joined.read(backend, _rounds(ask), follow=False, tail=None, notify=notify, first=_round(log))
        return
    name, end = log.stage, log.piece.size
    notify(log.job)
    if tail is not None:
        offset, tail = max(offset, log.piece.offset), None
    while True:
        data = log.piece.data[: max(0, end - offset)]
        if data or log.piece.offset < offset:
            yield LogChunk(name, log.piece.offset, data)
        offset += len(data)
        if not data or offset >= end:
            return
        log = ask_for(name)


def _follow(
    backend: Backend,
    ask: Ask,
    stage: str,
    offset: int,
    tail: int | None,
    notify: Changes,
) -> Iterator[LogChunk]:
    interval = backend.interval
    patience = Patience(FOLLOWING, first=interval, sleep=backend.sleep)
    while True:
        log = patience.ask(lambda: ask(stage, offset, tail))  # noqa: B023  called at once
        chunk = LogChunk(log.stage, log.piece.offset, log.piece.data)
        active = log.job.active(stage)
        if active:
            notify(log.job)
        if tail is not None:
            offset, tail = max(offset, chunk.offset), None
        if chunk.data:
            yield chunk
            offset = chunk.next_offset
        if not active and (not chunk.data or offset >= log.piece.size):  # the status was read before the log
            notify(log.job)  # that it has ended comes after its last lines
            return
        if active and len(chunk.data) < LOG_BYTES:
            backend.sleep(interval)
