"""Reading training logs: the records in a line. A record is found anywhere in a line, because lines have node and rank prefixes, are
joined, or are overwritten by progress bars. The job kinds define the formats of their training steps; here are those of the compiler
and of well-known trainers that scripts use. Never raises, whatever the bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.records import (
    NUMBER,
    CacheStatus,
    CompileCount,
    CompileError,
    Reader,
    Record,
    Step,
    parse_number,
)

LONGEST_LINE = 100_000
"""Only this much of a line is read; lines of a training are shorter."""

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_MEGATRON = re.compile(
    r"iteration {1,20}(?P<step>\d{1,15})/ {0,20}(?P<total>\d{1,15}) \|"
    r"(?P<rest>[^\r\n]{0,2000}?)(?=iteration {1,20}\d{1,15}/|[\r\n]|$)"
)
_PAIR = re.compile(rf"(?P<key>[a-z()\- ]{{3,40}}):\s{{0,20}}(?P<value>{NUMBER})\s{{0,20}}(?:\||$)")
_DICTIONARY = re.compile(r"\{(?P<rest>'loss': [^{}\r\n]{1,1000})\}")
_ENTRY = re.compile(rf"'(?P<key>\w{{1,40}})': '?(?P<value>{NUMBER})'?(?=[,}}\s]|$)")
_END = r"(?=\d{4}-\d\d-\d\d |\D|$)"  # the end of a number, or the next line's date joined to it
_COUNT = re.compile(
    r"PARALLEL_COMPILE\|\|: Total (?P<what>graphs|successful compilations|failed compilations): (?P<count>\d{1,9}?)"
    + _END
)
_ERROR = re.compile(
    r"PARALLEL_COMPILE\|\|: .{0,80}?exited with error\.\s*Received error code: (?P<code>-?\d{1,9}?)" + _END
)
_CACHE = re.compile(
    r"NEURON_CACHE\|\|: Current remaining items are (?P<remaining>\d{1,9}), locked are (?P<locked>\d{1,9}), "
    r"failed are (?P<failed>\d{1,9}), "
    r"done are (?P<done>\d{1,9}), total is (?P<total>\d{1,9}?)" + _END
)


def parse_line(line: bytes | str) -> Iterator[Record]:
    """All records in a line, in their order."""
    text = line[:LONGEST_LINE].decode(errors="replace") if isinstance(line, bytes) else line[:LONGEST_LINE]
    text = _COLOUR.sub("", text)
    found: list[tuple[int, Record]] = []
    for reader in readers():
        found += reader(text)
    for match in _COUNT.finditer(text):
        found.append((match.start(), CompileCount(match["what"].split()[0], int(match["count"]))))
    found += [(m.start(), CompileError(int(m["code"]))) for m in _ERROR.finditer(text)]
    for match in _CACHE.finditer(text):
        found.append((match.start(), CacheStatus(**{k: int(v) for k, v in match.groupdict().items()})))
    yield from (record for _, record in sorted(found, key=lambda f: f[0]))


@cache
def readers() -> tuple[Reader, ...]:
    """The readers of all kinds, without duplicates, and those of well-known trainers."""
    of_kinds = [reader for kind in kinds().values() for reader in kind.LOGS]
    return tuple(dict.fromkeys([*of_kinds, _megatron_lines, hugging_face]))


def hugging_face(text: str) -> Iterator[tuple[int, Step]]:
    """The dictionaries that Hugging Face's Trainer prints; they have no step."""
    for match in _DICTIONARY.finditer(text):
        values = {m["key"]: parse_number(m["value"]) for m in _ENTRY.finditer(match["rest"])}
        yield (
            match.start(),
            Step(None, values.get("loss"), values.get("learning_rate"), grad_norm=values.get("grad_norm")),
        )


def _megatron_lines(text: str) -> Iterator[tuple[int, Step]]:
    for match in _MEGATRON.finditer(text):
        yield match.start(), _megatron(match)


def _megatron(match: re.Match[str]) -> Step:
    fields = {m["key"].strip(): parse_number(m["value"]) for m in _PAIR.finditer(match["rest"])}
    batch, milliseconds = fields.get("global batch size"), fields.get("elapsed time per iteration (ms)")
    return Step(
        int(match["step"][:15]),
        fields.get("lm loss"),
        fields.get("learning rate"),
        fields.get("throughput"),
        fields.get("grad norm"),
        int(match["total"][:15]),
        int(batch) if batch is not None else None,
        milliseconds / 1000 if milliseconds is not None else None,
    )


@dataclass
class Summary:
    """A run so far. The mean throughput excludes the first steps, which compile and warm up."""

    warmup: int = 5
    steps: int = 0
    last: Step | None = None
    first_loss: float | None = None
    graphs: int = 0
    failed_graphs: int = 0
    compile_errors: int = 0
    cache: CacheStatus | None = None
    _speeds: list[float] = field(default_factory=list, repr=False)

    def add(self, record: Record) -> None:
        if isinstance(record, Step):
            if self.last and record.step == self.last.step and record.loss == self.last.loss:
                return  # a progress bar repeats itself
            self.steps += 1
            self.last = record
            self.first_loss = record.loss if self.first_loss is None else self.first_loss
            if record.throughput is not None:
                self._speeds.append(record.throughput)
        elif isinstance(record, CompileCount):
            self.graphs += record.count if record.what == "graphs" else 0
            self.failed_graphs += record.count if record.what == "failed" else 0
        elif isinstance(record, CompileError):
            self.compile_errors += 1
        else:
            self.cache = record

    @property
    def throughput(self) -> float | None:
        """Mean sequences per second after the warm-up, or of all steps during it."""
        speeds = self._speeds[self.warmup :] or self._speeds
        return sum(speeds) / len(speeds) if speeds else None


@dataclass
class Follower:
    """Reads a log in pieces of any size and returns the records of its complete lines."""

    summary: Summary = field(default_factory=Summary)
    _rest: bytes = b""

    def feed(self, data: bytes) -> list[Record]:
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > 1_000_000:  # not a line of a training: dropped
            self._rest = b""
        return self._take(lines)

    def close(self) -> list[Record]:
        """The records of what came after the last line end."""
        rest, self._rest = self._rest, b""
        return self._take([rest])

    def _take(self, lines: list[bytes]) -> list[Record]:
        records = [record for line in lines for record in parse_line(line)]
        for record in records:
            self.summary.add(record)
        return records
