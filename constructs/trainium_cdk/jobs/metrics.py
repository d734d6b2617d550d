"""Reading training logs: one line in, what it says out. Six formats, found anywhere in a line, for lines come with
node and rank in front, glued together, or overwritten in place by progress bars. Never raises, whatever the bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        loss: None where the line has none.
        throughput: sequences per second; None where the line has none.
    """

    step: int
    loss: float | None = None
    learning_rate: float | None = None
    throughput: float | None = None
    grad_norm: float | None = None
    total_steps: int | None = None
    global_batch_size: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class CompileCount:
    """One line of the summary that neuron_parallel_compile prints on each node: `what` is graphs, successful or
    failed."""

    what: str
    count: int


@dataclass(frozen=True)
class CompileError:
    """A graph that the compiler gave up on. -9: the host ran out of memory."""

    code: int


@dataclass(frozen=True)
class CacheStatus:
    """How far a node's compilation is."""

    remaining: int
    locked: int
    failed: int
    done: int
    total: int


LONGEST_LINE = 100_000
"""Of a longer line only this much is looked at; it is none of a training's."""

Record = Step | CompileCount | CompileError | CacheStatus

# digits are counted: without bounds a line of nothing else would take minutes
_N = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|nan|inf|-inf|NaN"
_BERT = re.compile(
    rf"LOG .{{10,40}}? - \(\d{{1,15}}, (?P<step>\d{{1,15}})\) step_loss : (?P<loss>{_N})\s+learning_rate : "
    rf"(?P<lr>{_N})\s+throughput : (?P<speed>{_N})"
    rf"(?:\s+grad-norm : (?P<norm>{_N}))?"
)
_MEGATRON = re.compile(
    r"iteration {1,20}(?P<step>\d{1,15})/ {0,20}(?P<total>\d{1,15}) \|"
    r"(?P<rest>[^\r\n]{0,2000}?)(?=iteration {1,20}\d{1,15}/|[\r\n]|$)"
)
_PAIR = re.compile(rf"(?P<key>[a-z()\- ]{{3,40}}):\s{{0,20}}(?P<value>{_N})\s{{0,20}}(?:\||$)")
_PROGRESS = re.compile(r"\|\s{0,20}(?P<at>\d{1,15})/(?P<total>\d{1,15}) \[(?P<rest>[^\[\]\r\n]{0,2000})\]")
_SETTING = re.compile(rf"(?P<key>[\w-]{{1,60}})=(?P<value>{_N})(?=[,\]\s]|$)")
_END = r"(?=\d{4}-\d\d-\d\d |\D|$)"  # a number ends, or the next line's date is glued to it
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
    """All records in a line, in the order they stand there."""
    text = line[:LONGEST_LINE].decode(errors="replace") if isinstance(line, bytes) else line[:LONGEST_LINE]
    found: list[tuple[int, Record]] = []
    for match in _BERT.finditer(text):
        step = Step(
            int(match["step"][:15]),
            _number(match["loss"]),
            _number(match["lr"]),
            _number(match["speed"]),
            _number(match["norm"]),
        )
        found.append((match.start(), step))
    found += [(m.start(), _megatron(m)) for m in _MEGATRON.finditer(text)]
    found += [(m.start(), s) for m in _PROGRESS.finditer(text) if (s := _progress(m))]
    for match in _COUNT.finditer(text):
        found.append((match.start(), CompileCount(match["what"].split()[0], int(match["count"]))))
    found += [(m.start(), CompileError(int(m["code"]))) for m in _ERROR.finditer(text)]
    for match in _CACHE.finditer(text):
        found.append((match.start(), CacheStatus(**{k: int(v) for k, v in match.groupdict().items()})))
    yield from (record for _, record in sorted(found, key=lambda f: f[0]))


def _megatron(match: re.Match[str]) -> Step:
    said = {m["key"].strip(): _number(m["value"]) for m in _PAIR.finditer(match["rest"])}
    batch, milliseconds = said.get("global batch size"), said.get("elapsed time per iteration (ms)")
    return Step(
        int(match["step"][:15]),
        said.get("lm loss"),
        said.get("learning rate"),
        said.get("throughput"),
        said.get("grad norm"),
        int(match["total"][:15]),
        int(batch) if batch is not None else None,
        milliseconds / 1000 if milliseconds is not None else None,
    )


def _progress(match: re.Match[str]) -> Step | None:
    """NeMo's and NxDT's progress bars. `global_step` counts from 0; the bar's own position is only that of the data
    loader."""
    said = {m["key"]: _number(m["value"]) for m in _SETTING.finditer(match["rest"])}
    loss = said.get("reduced_train_loss", said.get("loss"))
    step = said.get("global_step")
    if loss is None and step is None:
        return None
    return Step(
        int(step) if step is not None else int(match["at"][:15]),
        loss,
        said.get("lr"),
        said.get("throughput"),
        said.get("gradient_norm"),
        int(match["total"][:15]),
    )


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    value = float(text)
    return value if math.isfinite(value) and abs(value) < 1e15 else None


@dataclass
class Summary:
    """A run so far. The mean throughput leaves out the first steps, which compile and warm up."""

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
        """Mean sequences per second after the warm-up, or of all steps while there are no more."""
        speeds = self._speeds[self.warmup :] or self._speeds
        return sum(speeds) / len(speeds) if speeds else None


@dataclass
class Follower:
    """Feeds on a log in pieces of any size and gives the records of its lines; half a line waits for its other half."""

    summary: Summary = field(default_factory=Summary)
    _rest: bytes = b""

    def feed(self, data: bytes) -> list[Record]:
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > 1_000_000:  # no line of ours: let it go
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
