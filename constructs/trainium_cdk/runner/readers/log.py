"""The one reader of a job's log, for `trn logs`, its `--metrics` and `--follow`, the report and the live views.

`JobLog` takes pieces of the log, each with its stage, and gives the records of its complete lines. A record is found anywhere in a line:
lines have node and rank prefixes, are joined, or are overwritten by progress bars. The kinds of jobs bring readers of their steps; here are
those of the compiler and of well-known trainers. A line in which none of them finds a loss is read as scripts of one's own print steps
(`step_lines.py`). It never raises, whatever the bytes.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .records import (
    COLOUR,
    LONGEST_LINE,
    NUMBER,
    CacheStatus,
    CompileCount,
    CompileError,
    MarkedReader,
    Reader,
    Record,
    Start,
    Step,
    parse_number,
    reads,
)
from .step_lines import MARKS, read_step

TAIL_BYTES = 65_536
"""Of the end of each stage's log, which is kept."""
WARMUP = 5
"""The first steps of a training, which compile and warm up: the mean throughput excludes them."""
_TRAIN = "train"
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
    r"(?P<time>20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d)Z"
)
_OTHERS = ("_COMPILE||: ", "_CACHE||: ", "trn: ")
"""One of them is in each line of the compiler, or with a start."""


def _others(text: str) -> Iterator[tuple[int, Record]]:
    for match in _COUNT.finditer(text):
        yield match.start(), CompileCount(match["what"].split()[0], int(match["count"]))
    for match in _ERROR.finditer(text):
        yield match.start(), CompileError(int(match["code"]))
    for match in _CACHE.finditer(text):
        yield match.start(), CacheStatus(**{k: int(v) for k, v in match.groupdict().items()})
    for match in _START.finditer(text):
        if (time := _seconds(match["time"])) is not None:
            yield match.start(), Start(match["stage"], time, int(match["attempt"]) if match["attempt"] else None)


def _seconds(text: str) -> int | None:
    try:
        return int(dt.datetime.strptime(f"{text}+0000", "%Y-%m-%dT%H:%M:%S%z").timestamp())
    except ValueError:  # the 31st of February
        return None


@reads("'loss': ")
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


@reads("iteration ")
def megatron(text: str) -> Iterator[tuple[int, Step]]:
    """The lines of Megatron-LM and of trainers that print as it does."""
    for match in _MEGATRON.finditer(text):
        fields = {m["key"].strip(): parse_number(m["value"]) for m in _PAIR.finditer(match["rest"])}
        batch, milliseconds = fields.get("global batch size"), fields.get("elapsed time per iteration (ms)")
        step = Step(
            int(match["step"]),
            fields.get("lm loss"),
            fields.get("learning rate"),
            fields.get("throughput"),
            fields.get("grad norm"),
            int(match["total"]),
            int(batch) if batch is not None else None,
            milliseconds / 1000 if milliseconds is not None else None,
        )
        yield match.start(), step


def _marks(reader: Reader) -> tuple[str, ...]:
    return reader.marks if isinstance(reader, MarkedReader) else ("",)  # the empty word is in every line


class Lines:
    """Reads lines, each by itself.

    Args:
        readers: of steps, as the kinds of jobs have them, beside those of well-known trainers.
    """

    def __init__(self, readers: Iterable[Reader] = ()):
        every: list[Reader] = [*readers, megatron, hugging_face]
        self._readers = [(_marks(one), one) for one in dict.fromkeys(every)]
        words = (word for marks in [*(marks for marks, _ in self._readers), _OTHERS, MARKS] for word in marks)
        self.marks = [word.encode() for word in dict.fromkeys(words)]
        """A line without any of these has no record."""

    def worth(self, text: bytes) -> Iterator[bytes]:
        """The lines of a text that may have a record."""
        marks = [mark for mark in self.marks if mark in text]
        return (line for line in text.split(b"\n") if any(mark in line for mark in marks)) if marks else iter(())

    def parse(self, line: bytes | str) -> tuple[list[Record], str | None]:
        """The records in a line, in their order; and, if its step is of no program that is known here, the node or worker that the line
        begins with."""
        text = line[:LONGEST_LINE].decode(errors="replace") if isinstance(line, bytes) else line[:LONGEST_LINE]
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        found: list[tuple[int, Record]] = []
        for marks, read in self._readers:
            if any(mark in text for mark in marks):
                found += read(text)
        if any(mark in text for mark in _OTHERS):
            found += _others(text)
        found.sort(key=lambda one: one[0])
        records = [record for _, record in found]
        steps = [record for record in records if isinstance(record, Step)]
        if all(step.loss is None for step in steps):
            own = read_step(text)
            if own is not None and (not steps or own.loss is not None):
                of = _FROM.match(text)
                rest: list[Record] = [record for record in records if not isinstance(record, Step)]
                return [*rest, own], of[0] if of else ""
        return records, None


@dataclass
class JobLog:
    """The log of a job: feed it pieces of any size, then close it. It keeps the end of each stage's log, and no record.

    Where several nodes or workers print steps of a script of one's own, those of the first that does are taken. Steps of other stages than
    `train` are trials, as precompile's: they are records, but no figure counts them.

    Args:
        lines: how its lines are read.

    Attributes:
        steps: of the training, so far.
        last: its last step.
        first_loss: None if there was none.
        compiled: graphs, successful and failed ones of all nodes, by these words.
        errors: codes of graphs that failed to compile.
        cache: the newest progress of a compilation.
        starts: of each stage, its attempts.
        tails: of each stage, the end of its log, at most `TAIL_BYTES`.
    """

    lines: Lines
    steps: int = 0
    last: Step | None = None
    first_loss: float | None = None
    compiled: dict[str, int] = field(default_factory=dict)
    errors: list[int] = field(default_factory=list)
    cache: CacheStatus | None = None
    starts: dict[str, list[Start]] = field(default_factory=dict)
    tails: dict[str, bytes] = field(default_factory=dict, repr=False)
    _stage: str = ""
    _rest: bytes = field(default=b"", repr=False)
    _from: dict[str, str] = field(default_factory=dict, repr=False)
    _known: set[str] = field(default_factory=set, repr=False)
    _warm: list[float] = field(default_factory=list, repr=False)
    _sum: float = field(default=0.0, repr=False)
    _count: int = field(default=0, repr=False)

    def feed(self, stage: str, data: bytes) -> list[tuple[str, Record]]:
        """Take the next piece of a stage's log: the records of its complete lines, each with its stage. Another stage ends the last line
        of the one before."""
        found = [] if stage == self._stage else self.close()
        self._stage = stage
        self.tails[stage] = (data if len(data) > TAIL_BYTES else self.tails.get(stage, b"") + data)[-TAIL_BYTES:]
        text, _, rest = (self._rest + data).replace(b"\r", b"\n").rpartition(b"\n")
        self._rest = rest[:LONGEST_LINE]
        return found + self._take(text)

    def close(self) -> list[tuple[str, Record]]:
        """The records of what came after the last line end."""
        rest, self._rest = self._rest, b""
        return self._take(rest)

    @property
    def throughput(self) -> float | None:
        """Mean sequences per second of the training after the warm-up, or of all steps during it."""
        if self._count:
            return self._sum / self._count
        return sum(self._warm) / len(self._warm) if self._warm else None

    def tail(self, stage: str) -> list[str]:
        """The last lines of a stage's log, without empty ones."""
        lines = self.tails.get(stage, b"").decode(errors="replace").replace("\r", "\n").split("\n")
        return [line for line in lines if line.strip()]

    def _take(self, text: bytes) -> list[tuple[str, Record]]:
        found = []
        for line in self.lines.worth(text) if text else ():
            records, by = self.lines.parse(line)
            # a program that is known may tell a step again, in other words
            if by is not None and (self._stage in self._known or by != self._from.setdefault(self._stage, by)):
                records = [one for one in records if not isinstance(one, Step)]
            elif by is None and any(isinstance(one, Step) and one.step is not None for one in records):
                self._known.add(self._stage)
            found += [(self._stage, record) for record in records]
        for stage, record in found:
            self._count_record(stage, record)
        return found

    def _count_record(self, stage: str, record: Record) -> None:
        if isinstance(record, Step):
            if stage == _TRAIN:
                self._count_step(record)
        elif isinstance(record, CompileCount):
            self.compiled[record.what] = self.compiled.get(record.what, 0) + record.count
        elif isinstance(record, CompileError):
            self.errors.append(record.code)
        elif isinstance(record, CacheStatus):
            self.cache = record
        elif record.stage == stage:
            self.starts.setdefault(stage, []).append(record)

    def _count_step(self, step: Step) -> None:
        if self.last and step.step is not None and step[:2] == self.last[:2]:
            return  # a progress bar repeats itself
        self.steps += 1
        self.last = step
        self.first_loss = step.loss if self.first_loss is None else self.first_loss
        if step.throughput is None:
            return
        if len(self._warm) < WARMUP:
            self._warm.append(step.throughput)
        else:
            self._sum, self._count = self._sum + step.throughput, self._count + 1
