"""The logs of an array's members, read together in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from trainium_cdk.client.jobs.backend import FOLLOWING, ONE_QUESTION, Changes, Patience
from trainium_cdk.client.jobs.status import ACTIVE, JobStatus, LogChunk


class Round(NamedTuple):
    """The array's status, and then the next pieces of its members' logs: of those that have any, in their order.

    Attributes:
        sizes: of these logs, by the member's index.
    """

    status: JobStatus
    chunks: Sequence[LogChunk]
    sizes: Mapping[str, int]


Ask = Callable[[Mapping[str, int], "int | None"], Round]
"""Asks for a round: these members' logs after these bytes; without any, all members'. Or so many last lines and what follows."""


class LogSource(Protocol):
    """A backend that is asked for logs: see `Backend`."""

    sleep: Callable[[float], None]

    @property
    def interval(self) -> float: ...


def read(
    backend: LogSource, ask: Ask, *, follow: bool, tail: int | None, notify: Changes, first: Round | None = None
) -> Iterator[LogChunk]:
    """Yield the logs up to now; or, with `follow`, until the array has ended.

    Args:
        first: a round that was asked for already, of all members.
    """
    patience = Patience(FOLLOWING if follow else ONE_QUESTION, first=backend.interval, sleep=backend.sleep)
    offsets: dict[str, int] = {}
    ends: Mapping[str, int] = {}
    while True:
        found = first or patience.ask(lambda: ask(offsets, tail))  # noqa: B023  called at once
        status, chunks, sizes = found
        ends = ends or sizes
        notify(status)
        before = offsets
        offsets = {m.name: before.get(m.name, 0) for m in status.members if not before or m.name in before}
        news = set()
        for chunk in chunks:
            if chunk.data:
                news.add(chunk.member)
                yield chunk
            # a log that ends before the offset is another one: a member was started again
            offsets[chunk.member] = chunk.next_offset if chunk.data else 0
        cut = [name for name in news if offsets[name] < sizes[name]]
        if follow:
            runs = {m.name for m in status.members if m.state in ACTIVE}
            offsets = {name: at for name, at in offsets.items() if name in runs | news}
        else:
            offsets = {name: at for name, at in offsets.items() if name in news and at < ends.get(name, 0)}
        if not offsets:
            return
        first, tail = None, None
        if follow and not cut:
            backend.sleep(backend.interval)
