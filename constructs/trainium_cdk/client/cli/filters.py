"""Output of `trn logs` for a job, or for each member of an array: all of it, the last lines of a log, the lines since a time, or the metrics."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from trainium_cdk.client.cli.output import log, one_line, output_filter, write_bytes
from trainium_cdk.client.jobs.metrics import job_log
from trainium_cdk.runner.readers.records import Finding, Start

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.status import JobStatus, LogChunk
    from trainium_cdk.runner.readers.records import Record

_TIME = re.compile(
    rb"(?P<year>20\d\d)-(?P<month>\d\d|[A-Z][a-z]{2})-(?P<day>\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)"  # also Neuron's 2026-Nov-24
    rb"|(?P<name>[A-Z][a-z]{2}) (?P<date>[ \d]\d) (?P<at>\d\d:\d\d:\d\d) (?P<of>20\d\d)"  # asctime: bert-large's lines
)
_MONTHS = {name: i for i, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(since: str, now: dt.datetime | None = None) -> dt.datetime:
    """A time in UTC: a duration before now (30m, 2h, 1d) or an ISO time.

    Raises:
        typer.BadParameter: it is neither.
    """
    now = now or dt.datetime.now(dt.UTC)
    if found := re.fullmatch(r"(\d{1,6})([smhd])", since):
        try:
            return now - dt.timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        except OverflowError:  # before the year 1
            return dt.datetime.min.replace(tzinfo=dt.UTC)
    try:
        given = dt.datetime.fromisoformat(since)
    except ValueError:
        raise typer.BadParameter(
            f"{since!r} is neither a duration nor a time. Write 30m, 2h or 1d, or a time such as 2026-11-24T07:00:00",
            param_hint="--since",
        ) from None
    return given if given.tzinfo else given.replace(tzinfo=dt.UTC)


def whole_lines(text: bytes) -> list[bytes]:
    """The lines of a text, and its rest. A line of more than 1 MB ends there: a job may write one without an end."""
    lines = text.split(b"\n")
    return lines if len(lines[-1]) < 1_000_000 else [*lines, b""]


def time_of(line: bytes) -> dt.datetime | None:
    """The first time in a line; nodes log in UTC."""
    found = _TIME.search(line[:1000])
    if not found:
        return None
    year, month, day, clock, *other = found.groups()
    if year is None:
        month, day, clock, year = other
    hour, minute, second = map(int, clock.split(b":"))
    try:
        return dt.datetime(int(year), _MONTHS.get(month) or int(month), int(day), hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None


class LineFilter:
    """A filter for the bytes of a log. Lines without a time take it from the line before.

    Args:
        tail: the last lines only, of those since then; they come with `close`.
    """

    def __init__(self, *, tail: int | None = None, since: dt.datetime | None = None):
        self._since, self._recent = since, since is None
        self._last: deque[bytes] | None = deque(maxlen=tail) if tail is not None else None
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The part that may be printed now."""
        *lines, self._rest = whole_lines(self._rest + data)
        return self._kept([line + b"\n" for line in lines])

    def close(self) -> bytes:
        """Return the lines that are left at the log's end."""
        rest, self._rest = self._rest, b""
        kept = self._kept([rest] if rest else [])
        return kept if self._last is None else b"".join(self._last)

    def _kept(self, lines: list[bytes]) -> bytes:
        found = [line for line in lines if self._is_recent(line)]
        if self._last is None:
            return b"".join(found)
        self._last.extend(found)
        return b""

    def _is_recent(self, line: bytes) -> bool:
        if self._since is not None and (at := time_of(line)):
            self._recent = at >= self._since
        return self._recent


class Stream:
    """One log.

    Args:
        filters: select lines of it.
        metrics: print the metrics instead, one JSON record on each line.
        last: only so many of them.
        member: index of an array's member, which begins each line. values: the member's values in a sweep.
    """

    def __init__(
        self,
        filters: LineFilter | None,
        *,
        metrics: bool,
        last: int | None,
        member: str = "",
        values: Mapping[str, str] = {},
    ):
        self.log = job_log()
        self.values = values
        self._filters, self._metrics = filters, metrics
        self._selected = job_log() if filters else self.log
        self._last = deque[bytes](maxlen=last) if metrics and last is not None else None
        self._label = f"[{member}] ".encode() if member and not metrics else b""
        self._more = {"member": member, "values": dict(values)} if member else {}
        self._stage, self._rest = "", b""

    def feed(self, stage: str, data: bytes) -> bytes:
        """Return the output for the next piece of a log."""
        self._stage = stage
        text = self._filters.feed(data) if self._filters else data
        if self._metrics:
            text = self._as_json(self._selected.feed(stage, text))
        if self._filters or not self._metrics:
            self.log.feed(stage, data)
        return self._labelled(text)

    def end_stage(self) -> bytes:
        """Return the rest of a stage's output: its last line may have no line break."""
        text = self._filters.close() if self._filters else b""
        if self._metrics:
            return self._as_json([*self._selected.feed(self._stage, text), *self._selected.close()])
        text = self._labelled(text)
        rest, self._rest = self._rest, b""
        return text + (self._label + rest + b"\n" if rest else b"")

    def end(self) -> bytes:
        """Close the log. Return the last metrics, if only these are wanted."""
        self.log.close()
        return b"".join(self._last or ())

    def _as_json(self, records: Iterable[tuple[str, Record]]) -> bytes:
        lines = [
            json.dumps({**self._more, "stage": stage, "record": type(one).__name__, **_plain(one)}).encode() + b"\n"
            for stage, one in records
            # of Kubernetes, the last node's start comes after the first node's steps
            if self._last is None or not isinstance(one, Start)
        ]
        if self._last is None:
            return b"".join(lines)
        self._last.extend(lines)
        return b""

    def _labelled(self, text: bytes) -> bytes:
        """Return whole lines, each with its member: the next piece is another member's."""
        if not self._label:
            return text
        *lines, self._rest = whole_lines(self._rest + text)
        return b"".join(self._label + line + b"\n" for line in lines)


def _plain(record: Record) -> dict[str, Any]:
    return asdict(record) if isinstance(record, Finding) else record._asdict()


class LogOutput(NamedTuple):
    """The part of a log that is printed."""

    follow: bool
    metrics: bool
    tail: int | None
    since: dt.datetime | None

    @property
    def last_metrics(self) -> int | None:
        return self.tail if self.metrics and not self.follow else None

    @property
    def filtered(self) -> bool:
        """True if the lines are selected here, not by the cluster."""
        return self.since is not None or (self.tail is not None and not self.follow and not self.metrics)

    @property
    def of_log(self) -> int | None:
        """The number of last lines that the cluster selects; None where the filters here select them."""
        return None if self.last_metrics is not None or (not self.follow and self.since is not None) else self.tail

    def stream(self, member: str, values: Mapping[str, str]) -> Stream:
        """Return the output of a log, or of the log of an array's member."""
        last = None if self.follow or self.metrics else self.tail
        filters = LineFilter(tail=last, since=self.since) if self.filtered else None
        return Stream(filters, metrics=self.metrics, last=self.last_metrics, member=member, values=values)


class Printed:
    """What has been printed of a job's log, piece by piece.

    Attributes:
        stage: the last one that had output; empty before the first.
        offset: byte of its log from which on nothing is printed.
        streams: by member of an array; of a job, one.
        status: the job's, as it came with the last piece.
        ends: the stage and the byte where its log ends, if that is before the offset that was asked for.
    """

    status: JobStatus

    def __init__(self, wanted: LogOutput, offset: int, *, raw: bool):
        self.stage, self.ends, self.offset = "", "", offset
        self.streams: dict[str, Stream] = {}
        self.wanted, self._raw, self._open_line = wanted, raw, False
        self._show = output_filter(raw=raw)

    def changed(self, status: JobStatus) -> None:
        self.status = status
        if self.wanted.follow:
            log(one_line(status))

    def stream(self, member: str = "") -> Stream:
        if member not in self.streams:
            of = self.status.member(member) if member else None
            self.streams[member] = self.wanted.stream(member, of.values if of else {})
        return self.streams[member]

    def add(self, chunk: LogChunk) -> None:
        """Print a piece of a log, with a line above the first one of a stage."""
        if not chunk.data:  # the log ends before the offset
            self.ends = f"the log of {chunk.stage} ends at byte {chunk.offset}"
            return
        if chunk.stage != self.stage:
            self._end_stage()
            if self._open_line:
                self._print(b"\n")
            self.stage, self.offset, self._show = chunk.stage, chunk.offset, output_filter(raw=self._raw)
            log(f"--- {self.stage}")
        self._print(self.stream(chunk.member).feed(self.stage, chunk.data))
        self.offset = chunk.next_offset

    def end(self) -> None:
        """Print what is left at the end of all logs."""
        self._end_stage()
        for one in self.streams.values():
            self._print(one.end())

    def _end_stage(self) -> None:
        for one in self.streams.values():
            self._print(one.end_stage())

    def _print(self, text: bytes) -> None:
        if text:
            write_bytes(text, self._handed_out, self._show)
            self._open_line = not text.endswith(b"\n")

    def _handed_out(self, size: int) -> None:
        """Count bytes that were printed as they are: after an interruption, the rest begins there."""
        self.offset += 0 if self.wanted.metrics or self.wanted.filtered else size
