"""Reading training logs: the records in a line. A record is found anywhere in a line, because lines have node and rank prefixes, are
joined, or are overwritten by progress bars. The job kinds define the formats of their training steps; here are those of the compiler
and of well-known trainers that scripts use. A line in which none of these finds a loss is read as scripts of one's own print steps
(`step_lines.py`). Never raises, whatever the bytes."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.records import (
    COLOUR,
    LONGEST_LINE,
    NUMBER,
    USUAL,
    WHOLE,
    CacheStatus,
    CompileCount,
    CompileError,
    Form,
    MarkedReader,
    Reader,
    Record,
    Start,
    Step,
    Steps,
    contained,
    parse_number,
    reads,
)
from trainium_cdk.jobs.status import whole
from trainium_cdk.jobs.step_lines import MARKS, read_step

_PIECES = (196_608, 32_768, 4096)
"""Bytes that are read at once. Where a line of them is not a usual one, they are read in smaller pieces; of the smallest, each line alone."""

_COLOUR = re.compile(COLOUR)
_MEGATRON = re.compile(
    r"iteration {1,20}(?P<step>\d{1,15})/ {0,20}(?P<total>\d{1,15}) \|"
    r"(?P<rest>[^\r\n]{0,2000}?)(?=iteration {1,20}\d{1,15}/|[\r\n]|$)"
)
_PAIR = re.compile(rf"(?P<key>[a-z()\- ]{{3,40}}):\s{{0,20}}(?P<value>{NUMBER})\s{{0,20}}(?:\||$)")
_DICTIONARY = re.compile(r"\{(?P<rest>'loss': [^{}\r\n]{1,1000})\}")
_OTHER_NODE = re.compile(r" *0*[1-9]\d{0,5}: ")
"""The beginning of a line of another node than the first, where a log has the lines of several."""
_FROM = re.compile(r"(?: *\d{1,6}: )?(?:\[(?:default|rank ?)?\d{1,6}\]:)?")
"""The node and the worker that a line begins with."""
_OF_FIRST = "".join(rf"(?<![1-9]{digits}: \{{)" for digits in ("", r"\d", r"\d\d", r"\d\d\d"))
_ENTRY = re.compile(rf"'(?P<key>\w{{1,40}})': '?(?:np\.float\d{{1,3}}\()?(?P<value>{NUMBER})\)?'?(?=[,}}\s]|$)")
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
_START = re.compile(
    # the names of hundreds of nodes may be long
    r"trn: (?P<stage>prepare|precompile|train): (?:Slurm job \d{1,12} on [^ ]{1,60000}|.{0,300}?)(?:, attempt (?P<attempt>\d{1,6}))?, "
    r"(?P<time>20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ)"
)
_OTHERS = ("_COMPILE||: ", "_CACHE||: ", "trn: ")
"""One of them is in each line of the compiler, or with a start."""


def parse_line(line: bytes | str) -> list[Record]:
    """All records in a line, in their order."""
    return _parse(line)[0]


def _parse(line: bytes | str) -> tuple[list[Record], str | None]:
    """The records in a line; and, if its step is of no program that is known here, the node or worker that the line begins with."""
    text = line[:LONGEST_LINE].decode(errors="replace") if isinstance(line, bytes) else line[:LONGEST_LINE]
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    found: list[tuple[int, Record]] = []
    for words, reader in _marked():
        for word in words:
            if word in text:
                found += reader(text)
                break
    if len(found) > 1:
        found.sort(key=lambda f: f[0])
    records = [record for _, record in found]
    steps = [record for record in records if isinstance(record, Step)]
    if all(step.loss is None for step in steps):
        own = read_step(text)
        if own is not None and (not steps or own.loss is not None):
            return [*(record for record in records if not isinstance(record, Step)), own], _FROM.match(text)[0]  # type: ignore[index]
    return records, None


@cache
def _marked() -> tuple[tuple[tuple[str, ...], Reader], ...]:
    """The readers with the words of which one is in each of their lines; the empty word is in every line."""
    found: list[tuple[tuple[str, ...], Any]] = [
        (one.marks, one.read) if isinstance(one, MarkedReader) else (("",), one) for one in readers()
    ]
    return (*found, (_OTHERS, _others))


def _others(text: str) -> Iterator[tuple[int, Record]]:
    for match in _COUNT.finditer(text):
        yield match.start(), CompileCount(match["what"].split()[0], int(match["count"]))
    for match in _ERROR.finditer(text):
        yield match.start(), CompileError(int(match["code"]))
    for match in _CACHE.finditer(text):
        yield match.start(), CacheStatus(**{k: int(v) for k, v in match.groupdict().items()})
    for match in _START.finditer(text):
        if (time := _seconds(match["time"])) is not None:
            yield match.start(), Start(match["stage"], time, whole(match["attempt"]))


@cache
def readers() -> tuple[Reader, ...]:
    """The readers of all kinds, without duplicates, and those of well-known trainers."""
    of_kinds = [reader for kind in kinds().values() for reader in kind.LOGS]
    return tuple(dict.fromkeys([*of_kinds, _megatron_lines, hugging_face]))


@cache
def marks() -> tuple[bytes, ...] | None:
    """A line without any of these, or of `OWN_MARKS`, has no record; None if a reader has no marks."""
    if not all(isinstance(reader, MarkedReader) for reader in readers()):
        return None
    return tuple(dict.fromkeys(word.encode() for words, _ in _marked() for word in words))


OWN_MARKS = tuple(mark.encode() for mark in MARKS)


@cache
def _forms() -> list[Form]:
    """The usual lines of all readers, without those that another reader reads too; those that were seen last come first."""
    shared = Counter(word for words, _ in _marked() for word in words)
    marked = [reader for reader in readers() if isinstance(reader, MarkedReader)]
    return [form for one in marked for form in one.forms if all(shared[word] == 1 for word in one.marks)]


def _split(text: bytes, size: int) -> Iterator[bytes]:
    """Whole lines of `size` bytes together, or a longer one."""
    begin = 0
    while begin < len(text):
        end = text.rfind(b"\n", begin, begin + size) + 1 or text.find(b"\n", begin) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _records(
    text: bytes, smaller: Sequence[int], read: Callable[[bytes], Iterable[Record]] = parse_line
) -> Iterator[Record | Steps]:
    """The records of whole lines, in their order.

    Args:
        smaller: sizes of pieces in which they can be read.
        read: reads one line.
    """
    words = marks()
    if words is None:
        for line in text.split(b"\n"):
            yield from read(line)
        return
    forms = _forms()
    for form in forms[:1]:  # most probably it is this one again
        if any(word in text for word in form.marks) and (found := form.steps(text, words, OWN_MARKS)):
            yield found
            return
    there = contained((*words, *OWN_MARKS), text)
    possible = [form for form in forms if there.intersection(form.marks)]
    for form in possible:
        if form is not forms[0] and (found := form.steps(text, words, OWN_MARKS)):
            forms[:] = [form, *(other for other in forms if other is not form)]
            yield found
            return
    if possible and smaller:
        for piece in _split(text, smaller[0]):
            yield from _records(piece, smaller[1:], read)
        return
    begins = set()
    for mark in there:
        at = text.find(mark)
        while at >= 0:
            begins.add(text.rfind(b"\n", 0, at) + 1)
            end = text.find(b"\n", at)
            at = text.find(mark, end) if end >= 0 else -1
    for begin in sorted(begins):
        end = text.find(b"\n", begin)
        yield from read(text[begin : end if end >= 0 else len(text)])


def _seconds(text: str) -> int | None:
    try:
        return int(dt.datetime.fromisoformat(text).timestamp())
    except ValueError:  # the 31st of February
        return None


def _dictionaries() -> Iterator[str]:
    orders = ("loss", "grad_norm", "learning_rate"), ("loss", "learning_rate", "grad_norm"), ("loss", "learning_rate")
    for quote, others, names in product(("", "'"), (0, 9), orders):
        first = ", ".join(f"'{name}': {quote}(?P<{name}>{USUAL}){quote}" for name in names)
        other = (
            rf"(?:, '(?!loss'|learning_rate'|grad_norm'|epoch'|step')\w{{1,40}}': {quote}-?{USUAL}{quote}){{1,{others}}}"
            if others
            else ""
        )
        yield rf"\{{{_OF_FIRST}{first}{other}, 'epoch': {quote}{USUAL}{quote}\}}"


@reads("'loss': ", usual=[*_dictionaries()])
def hugging_face(text: str) -> Iterator[tuple[int, Step]]:
    """The dictionaries that Hugging Face's Trainer prints; most have no step. Each node prints the same ones."""
    if _OTHER_NODE.match(text):
        return
    for match in _DICTIONARY.finditer(text):
        values = {m["key"]: parse_number(m["value"]) for m in _ENTRY.finditer(match["rest"])}
        step = values.get("step")
        number = int(step) if step is not None and step >= 0 else None
        yield (
            match.start(),
            Step(number, values.get("loss"), values.get("learning_rate"), grad_norm=values.get("grad_norm")),
        )


_PARTS = (
    rf"iteration {{1,20}}(?P<step>{WHOLE})/ {{0,20}}(?P<total_steps>{WHOLE}) \| consumed samples: {{1,20}}{WHOLE} \| ",
    rf"elapsed time per iteration \(ms\): (?P<milliseconds>{USUAL}) \| ",
    rf"learning rate: (?P<learning_rate>{USUAL}) \| global batch size: {{1,20}}(?P<global_batch_size>{WHOLE}) \| lm loss: (?P<loss>{USUAL}) \| ",
    rf"grad norm: (?P<grad_norm>{USUAL}) \| ",
)


@reads(
    "iteration ",
    usual=(
        rf"{''.join(_PARTS)}throughput: (?P<throughput>{USUAL}) \|",
        rf"{_PARTS[0]}{_PARTS[1]}(?:throughput per GPU \(TFLOP/s/GPU\): {USUAL} \| )?{_PARTS[2]}loss scale: {USUAL} \| {_PARTS[3]}"
        rf"(?:num zeros: {USUAL} \| )?(?:params norm: {USUAL} \| )?number of skipped iterations: {{1,9}}{WHOLE} \| number of nan iterations: {{1,9}}{WHOLE} \|",
    ),
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
    starts: list[Start] = field(default_factory=list)
    _first: list[float] = field(default_factory=list, repr=False)
    _sum: float = field(default=0.0, repr=False)
    _count: int = field(default=0, repr=False)

    def add(self, record: Record | Steps) -> None:
        if isinstance(record, Steps):
            self._add_all(record)
        elif isinstance(record, Step):
            if self.last and record.step is not None and record[:2] == self.last[:2]:
                return  # a progress bar repeats itself
            self.steps += 1
            self.last = record
            self.first_loss = record.loss if self.first_loss is None else self.first_loss
            if record.throughput is None:
                return
            if len(self._first) < self.warmup:
                self._first.append(record.throughput)
            else:
                self._sum, self._count = self._sum + record.throughput, self._count + 1
        elif isinstance(record, CompileCount):
            self.graphs += record.count if record.what == "graphs" else 0
            self.failed_graphs += record.count if record.what == "failed" else 0
        elif isinstance(record, CompileError):
            self.compile_errors += 1
        elif isinstance(record, Start):
            self.starts.append(record)
        else:
            self.cache = record

    def _add_all(self, steps: Steps) -> None:
        changed = steps.changed(self.last)
        if changed is None:
            return
        self.steps += len(changed)
        self.last = changed.last
        if self.first_loss is None:
            self.first_loss = next(iter(changed)).loss
        speeds, warm = changed.columns.get("throughput", []), self.warmup - len(self._first)
        self._first += speeds[:warm]
        self._sum, self._count = sum(speeds[warm:], self._sum), self._count + len(speeds[warm:])

    @property
    def throughput(self) -> float | None:
        """Mean sequences per second after the warm-up, or of all steps during it."""
        if self._count:
            return self._sum / self._count
        return sum(self._first) / len(self._first) if self._first else None


@dataclass
class Follower:
    """Reads a log in pieces of any size and returns the records of its complete lines. It keeps the last, incomplete line only, up to
    `LONGEST_LINE`. Where several nodes or workers print steps of a script of one's own, those of the first that does are taken."""

    summary: Summary = field(default_factory=Summary)
    _rest: bytes = b""
    _from: str | None = None

    def feed(self, data: bytes) -> list[Record]:
        return _single(self.feed_many(data))

    def feed_many(self, data: bytes) -> list[Record | Steps]:
        """The same, several times as fast: neighbouring steps come as columns."""
        records: list[Record | Steps] = []
        for begin in range(0, len(data), _PIECES[0]):
            text, _, rest = (self._rest + data[begin : begin + _PIECES[0]]).replace(b"\r", b"\n").rpartition(b"\n")
            self._rest = rest[:LONGEST_LINE]
            records += self._take(text)
        return records

    def close(self) -> list[Record]:
        """The records of what came after the last line end."""
        rest, self._rest = self._rest, b""
        return _single(self._take(rest))

    def _line(self, line: bytes) -> list[Record]:
        records, printed = _parse(line)
        if printed is None:
            return records
        self._from = printed if self._from is None else self._from
        return records if printed == self._from else [one for one in records if not isinstance(one, Step)]

    def _take(self, text: bytes) -> list[Record | Steps]:
        records = [*_records(text, _PIECES[1:], self._line)]
        for record in records:
            self.summary.add(record)
        return records


def _single(records: list[Record | Steps]) -> list[Record]:
    return [one for record in records for one in (record if isinstance(record, Steps) else (record,))]
