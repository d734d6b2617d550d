"""Output of `trn logs` for a job, or for each member of an array."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainium_cdk.cli.filters import whole_lines
from trainium_cdk.jobs import job_log
from trainium_cdk.runner.readers.records import Finding, Start

if TYPE_CHECKING:
    from trainium_cdk.cli.filters import LineFilter
    from trainium_cdk.runner.readers.records import Record


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
