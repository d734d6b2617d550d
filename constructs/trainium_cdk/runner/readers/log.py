"""The one reader of a job's log, for `trn logs`, its `--metrics` and `--follow`, the report and `--watch`.

`JobLog` takes pieces of the log, each with its stage, and gives the records of its complete lines. A record is found anywhere in a line:
lines have node and rank prefixes, are joined, or are overwritten by progress bars. The kinds of jobs bring readers of their steps; here are
the readers of the compiler and of well-known trainers. A line in which none of them finds a loss is read as people's own scripts print steps
(`step_lines.py`). It never raises, whatever the bytes.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import (
    COLOUR,
    FOUND,
    LONGEST_LINE,
    NO_NUMBER,
    NUMBER,
    CacheStatus,
    CompileCount,
    CompileError,
    Evaluation,
    Finding,
    MarkedReader,
    Reader,
    Record,
    Start,
    Step,
    parse_number,
    read_finding,
    reads,
)
from .course import Course
from .step_lines import MARKS, read_line

TAIL_BYTES = 65_536
"""Bytes of the end of each stage's log, which is kept."""
WARMUP = 5
"""The first steps of a training, which compile and warm up: the mean throughput excludes them."""
_TRAIN = "train"
LASTING = ("budget", "restarted")
"""Findings that are of all attempts."""
_MOST_FINDINGS = 20
_COLOUR = re.compile(COLOUR)
_MEGATRON = re.compile(
    r"iteration {1,20}(?P<step>\d{1,15})/ {0,20}(?P<total>\d{1,15}) \|"
    r"(?P<rest>[^\r\n]{0,2000}?)(?=iteration {1,20}\d{1,15}/|[\r\n]|$)"
)
_PAIR = re.compile(rf"(?P<key>[a-z()\- ]{{3,40}}):\s{{0,20}}(?P<value>{NUMBER})\s{{0,20}}(?:\||$)")
_STEP_LOSS = re.compile(
    rf"LOG .{{6,40}}? - \(\d{{1,15}}, (?P<step>\d{{1,15}})\) step_loss : (?P<loss>{NUMBER})\s+learning_rate : "
    rf"(?P<lr>{NUMBER})\s+throughput : (?P<speed>{NUMBER})"
    rf"(?:(?:\s+seq/s)?\s+grad-norm : (?P<norm>{NUMBER}))?"
)
_FROM = re.compile(rb"(?: *\d{1,6}: )?(?:\[(?:default|rank ?)?\d{1,6}\]:)?", re.IGNORECASE)
"""The node and the worker that a line begins with."""
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
_LABEL = rb"(?: *\d{1,6}: )?(?:\[(?:default|rank ?)?\d{1,6}\]:)? *"
_BLOCK = re.compile(
    rb"(?i)\[?\b((?:step|batch|iter|iteration)[=:# ]{1,3}\d{1,15}(?: ?(?:/|of) ?\d{1,15})?)(?: ?/ ?\?{1,3})?"
    rb"(?:,[\w=.:, ()]{0,80})?[\]):,=*# -]{0,80}\r?\n"
    rb"((?:" + _LABEL + rb"[ \t]{1,8}(?:[-*] )?[a-z][^\n=:]{0,100}(?:=|: )[^\n]{1,300}(?:\n|\Z))*)"
)
"""A step whose values are in the indented lines after it: OLMo-core's, Composer's and people's own. `???`: the number of steps is not known."""
_LAST_BLOCK = re.compile(_BLOCK.pattern + rb"\Z")
_VALUES = re.compile(
    rb"(?i)(?:\S.{0,60}?)?(?:loss|\blr|learning.rate|grad.?norm|throughput/(?:samples|device/(?:TPS|tokens)))(?![a-z]).{0,60}?(?:=|: ) *\S+"
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


@reads("iteration ")
def megatron(text: str) -> Iterator[tuple[int, Step]]:
    """The lines of Megatron-LM and of trainers that print as it does."""
    for match in _MEGATRON.finditer(text):
        fields = {m["key"].strip(): parse_number(m["value"]) for m in _PAIR.finditer(match["rest"])}
        batch, milliseconds = fields.get("global batch size"), fields.get("elapsed time per iteration (ms)")
        seconds = fields.get("elapsed time per iteration (s)") if milliseconds is None else milliseconds / 1000
        step = Step(
            int(match["step"]),
            fields.get("lm loss"),
            fields.get("learning rate"),
            fields.get("throughput", fields.get("samples per second")),
            fields.get("grad norm"),
            int(match["total"]),
            int(batch) if batch is not None else None,
            seconds,
        )
        yield match.start(), step


@reads(" step_loss : ")
def step_loss(text: str) -> Iterator[tuple[int, Step]]:
    """The `LOG ...` lines of the vendor's BERT-Large; NeuronX Distributed's examples print the same, with a unit."""
    for match in _STEP_LOSS.finditer(text):
        step, *numbers = match.groups()
        loss, rate, speed, norm = map(parse_number, numbers)
        yield match.start(), Step(int(step), loss, rate, speed, norm)


def _marks(reader: Reader) -> tuple[str, ...]:
    return reader.marks if isinstance(reader, MarkedReader) else ("",)  # the empty word is in every line


class Lines:
    """Reads lines, each alone.

    Args:
        readers: of steps, as the kinds of jobs have them, in addition to well-known trainers'.
    """

    def __init__(self, readers: Iterable[Reader] = ()):
        every: list[Reader] = [*readers, megatron, step_loss]
        self._readers = [(_marks(one), one) for one in dict.fromkeys(every)]
        words = (word for marks in [*(marks for marks, _ in self._readers), _OTHERS, MARKS] for word in marks)
        self.marks = [word.encode() for word in dict.fromkeys(words)]
        """A line without any of these has no record."""

    def worth(self, text: bytes, by: str = "") -> Iterator[tuple[bytes, str]]:
        """The lines of a text that may have a record, each with the node and worker that it begins with. What a progress bar draws over is a line,
        and of the same worker.

        Args:
            by: of the line that the text continues with.
        """
        marks = [mark for mark in self.marks if mark in text]
        for line in text.split(b"\n") if marks else ():
            for piece in line.split(b"\r") if b"\r" in line else (line,):
                by = label(piece) or by
                if any(mark in piece for mark in marks):
                    yield piece, by
            by = ""

    def parse(self, line: bytes | str, course: Course, by: str = "") -> list[Record]:
        """The records in a line, in their order.

        Args:
            course: of the lines before it.
            by: the node and worker that it is of.
        """
        text = line[:LONGEST_LINE].decode(errors="replace") if isinstance(line, bytes) else line[:LONGEST_LINE]
        if "\x1b" in text:
            text = _COLOUR.sub("", text)
        if FOUND in text:
            finding = read_finding(text)
            return [finding] if finding else []
        found: list[tuple[int, Record]] = []
        for marks, read in self._readers:
            if any(mark in text for mark in marks):
                found += read(text)
        if any(mark in text for mark in _OTHERS):
            found += _others(text)
        found.sort(key=lambda one: one[0])
        steps = [record for _, record in found if isinstance(record, Step)]
        records: list[Record] = []
        own = read_line(text) if all(step.loss is None for step in steps) else None
        for _, record in found:
            if isinstance(record, (Step, Evaluation)):
                records += course.known(record, text, by) if own is None else ()
            else:
                records.append(record)
        return [*records, *course.take(own, text, by)] if own else records


def _joined(block: re.Match[bytes]) -> bytes:
    """A block as one line."""
    kept = [value[0].strip() for value in _VALUES.finditer(re.sub(rb" \(group \d{1,4}\)|_group\d{1,4}", b"", block[2]))]
    return b" ".join([b"", block[1], *kept]) + b"\n" if kept else block[0]


def label(line: bytes) -> str:
    """The node and the worker that a line begins with; empty without one."""
    return found[0].decode() if (found := _FROM.match(line)) else ""


@dataclass
class JobLog:
    """The log of a job: feed it pieces of any size, then close it. It keeps the end of each stage's log, and no record.

    Where several nodes or workers print the same steps, the first one's are taken. Steps of other stages than
    `train` are trials, as precompile's: they are records, but no figure counts them.

    Args:
        lines: how its lines are read.

    Attributes:
        steps: of the training, so far.
        last: its last step.
        first_loss: None if there was none.
        lost_at: the step since which the loss is NaN; None while it is one.
        evaluations: of validations and tests, the newest loss.
        compiled: graphs, successful and failed ones of all nodes, by these words.
        errors: codes of graphs that failed to compile.
        cache: the newest progress of a compilation.
        starts: of each stage, its attempts.
        findings: what is wrong with the training now.
        tails: of each stage, the end of its log, at most `TAIL_BYTES`.
    """

    lines: Lines
    steps: int = 0
    last: Step | None = None
    first_loss: float | None = None
    lost_at: int | None = None
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    compiled: dict[str, int] = field(default_factory=dict)
    errors: list[int] = field(default_factory=list)
    cache: CacheStatus | None = None
    starts: dict[str, list[Start]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    tails: dict[str, bytes] = field(default_factory=dict, repr=False)
    _stage: str = ""
    _rest: bytes = field(default=b"", repr=False)
    _by: str = ""
    _courses: dict[str, Course] = field(default_factory=dict, repr=False)
    _speed: _Mean = field(default_factory=lambda: _Mean(), repr=False)
    _took: _Mean = field(default_factory=lambda: _Mean(), repr=False)

    def feed(self, stage: str, data: bytes) -> list[tuple[str, Record]]:
        """Take the next piece of a stage's log: the records of its complete lines, each with its stage. Another stage ends the last line
        of the one before."""
        found = [] if stage == self._stage else self.close()
        self._stage = stage
        self.tails[stage] = (data if len(data) > TAIL_BYTES else self.tails.get(stage, b"") + data)[-TAIL_BYTES:]
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if block := _LAST_BLOCK.search(data, max(0, end - LONGEST_LINE), end):  # its next line may belong to it
            end = data.rfind(b"\n", 0, block.start()) + 1
        self._rest = data[end : end + LONGEST_LINE]
        return found + self._take(data[:end])

    def close(self) -> list[tuple[str, Record]]:
        """The records of what came after the last line end."""
        rest, self._rest = self._rest, b""
        return self._take(rest)

    @property
    def course(self) -> Course:
        """Return the course of the training."""
        return self._courses.get(_TRAIN) or Course()

    @property
    def throughput(self) -> float | None:
        """Mean sequences per second of the training after the warm-up, or of all steps during it; or what the program tells at its end."""
        told = self.course.summary
        return told.throughput if self._speed.value is None and told else self._speed.value

    @property
    def unit(self) -> str:
        """Return the unit of the throughput."""
        last = self.course.summary if self._speed.value is None else self.last
        return (last and last.throughput is not None and last.unit) or "sequences/s"

    @property
    def seconds(self) -> float | None:
        """Mean time of a step, in the same way."""
        told = self.course.summary
        return told.seconds if self._took.value is None and told else self._took.value

    @property
    def progress(self) -> str:
        """Describe the training's position: `step 12 of 100: loss 2.31`; a loss that is not a number, with the first such step; empty without a step."""
        if self.last is None:
            return ""
        step, loss, total = self.last.step, self.last.loss, self.last.total_steps
        text = f"{self.steps} logged step{'s' * (self.steps != 1)}" if step is None else f"step {step}"
        text += f" of {total}" if total and step is not None and step <= total else ""
        if self.lost_at is not None:
            return f"{text}: loss {NO_NUMBER} since step {self.lost_at}"
        return text if loss is None else f"{text}: loss {loss:.4g}"

    def tail(self, stage: str) -> list[str]:
        """The last lines of a stage's log, without empty ones."""
        lines = self.tails.get(stage, b"").decode(errors="replace").replace("\r", "\n").split("\n")
        return [line for line in lines if line.strip()]

    def _take(self, text: bytes) -> list[tuple[str, Record]]:
        if not text:
            return []
        found = []
        course = self._courses.setdefault(self._stage, Course())
        text = _BLOCK.sub(_joined, text)
        whole = text[:-1] if text.endswith((b"\n", b"\r")) else text
        for line, by in self.lines.worth(whole, self._by):
            found += [(self._stage, record) for record in self.lines.parse(line, course, by)]
        # a piece that ends with a carriage return is of the same line as the next one
        _, end, last = text.rpartition(b"\n")
        self._by = (label(last) or ("" if end else self._by)) if text.endswith(b"\r") else ""
        for stage, record in found:
            self._count_record(stage, record)
        return found

    def _count_record(self, stage: str, record: Record) -> None:
        if isinstance(record, Step):
            if stage == _TRAIN:
                self._count_step(record)
        elif isinstance(record, Evaluation):
            if stage == _TRAIN:
                self.evaluations[record.of] = record
        elif isinstance(record, CompileCount):
            self.compiled[record.what] = self.compiled.get(record.what, 0) + record.count
        elif isinstance(record, CompileError):
            self.errors.append(record.code)
        elif isinstance(record, CacheStatus):
            self.cache = record
        elif isinstance(record, Finding):
            self.findings = [one for one in self.findings if one.key != record.key][-_MOST_FINDINGS:]
            self.findings += [] if record.over else [record]
        elif record.stage == stage:
            self.starts.setdefault(stage, []).append(record)
            self._courses[stage].restarted()
            self.findings = [one for one in self.findings if one.kind in LASTING]

    def _count_step(self, step: Step) -> None:
        if self.last and step.step is not None and step[:2] == self.last[:2]:
            return  # a progress bar repeats itself
        self.steps += 1
        self.last = step
        if step.loss is not None:
            self.lost_at = None
        elif self.first_loss is not None and self.lost_at is None:
            self.lost_at = self.steps if step.step is None else step.step
        self.first_loss = step.loss if self.first_loss is None else self.first_loss
        self._speed.add(step.throughput)
        self._took.add(step.seconds)


def progress(end: bytes) -> str:
    """Describe a training's position by the end of its log, as `JobLog.progress`. A trainer that prints no step has no number here."""
    return look(end)[0]


KEPT = "kept: "
"""Begins the line that says what of a training is in S3: `trn status` shows the last one."""


def kept(end: bytes) -> str:
    """Find the last line about copies of a training's checkpoints (`work.keep`) in the end of its log; empty if there is none."""
    found: list[bytes] = re.findall(rb"^[^ ]{0,30} {0,3}trn: " + KEPT.encode() + rb"(.{1,900})", end, re.MULTILINE)
    return found[-1].decode(errors="replace") if found else ""


def look(end: bytes) -> tuple[str, tuple[Finding, ...]]:
    """Return `progress`, and the problems of the training, by the end of its log."""
    log = JobLog(Lines())
    log.feed(_TRAIN, end)
    log.close()
    told = log.progress if log.last and (log.last.step is not None or log.lost_at is not None) else ""
    return told, tuple(log.findings)


@dataclass
class _Mean:
    """The mean after the warm-up, or of all during it."""

    _warm: list[float] = field(default_factory=list)
    _sum: float = 0.0
    _count: int = 0

    def add(self, value: float | None) -> None:
        if value is None:
            return
        if len(self._warm) < WARMUP:
            self._warm.append(value)
        else:
            self._sum, self._count = self._sum + value, self._count + 1

    @property
    def value(self) -> float | None:
        if self._count:
            return self._sum / self._count
        return sum(self._warm) / len(self._warm) if self._warm else None
