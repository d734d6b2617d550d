"""What is read in training logs: the records, and what the readers of job kinds share. Readers never raise, whatever the bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress, count, repeat, starmap
from operator import gt, lt, ne
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One training step. A field is None if the line does not have it.

    Attributes:
        step: None for Hugging Face's Trainer.
        throughput: sequences per second, of all workers.
        tokens_per_second: of one worker, as TorchTitan prints it.
    """

    step: int | None
    loss: float | None = None
    learning_rate: float | None = None
    throughput: float | None = None
    grad_norm: float | None = None
    total_steps: int | None = None
    global_batch_size: int | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None


class Steps:
    """Consecutive training steps, at least one, as columns.

    Attributes:
        columns: a list of values for each field of `Step` that all their lines have.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], size: int):
        self.columns, self._size = columns, size

    @classmethod
    def of(cls, step: Step) -> Steps:
        """One step."""
        return cls({n: (v,) for n, v in zip(Step._fields, step, strict=True) if v is not None}, 1)

    def __iter__(self) -> Iterator[Step]:
        return starmap(Step, self.rows(Step._fields))

    def __len__(self) -> int:
        return self._size

    def rows(self, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """Their values of these fields."""
        return _rows([self.columns.get(name) for name in names], self._size)

    def numbers(self, before: int | None) -> Sequence[int]:
        """Their numbers; those that have none are counted from the one before them."""
        begin = (before or 0) + 1
        return self.columns.get("step") or range(begin, begin + self._size)

    def as_json(
        self, first: Mapping[str, Any], columns: Mapping[str, Sequence[float] | None] | None = None
    ) -> Iterator[str]:
        """An object of each: the same first entries, and its values of these columns, or null. Default: all fields."""
        columns = {name: self.columns.get(name) for name in Step._fields} if columns is None else columns
        begin = json.dumps(first)[:-1].replace("%", "%%")
        entries = "".join(f', "{name}": {"%r" if column else "null"}' for name, column in columns.items())
        return map(f"{begin}{entries}}}".__mod__, _rows([one for one in columns.values() if one], self._size))

    @cached_property
    def increase(self) -> bool:
        """Whether each has a higher number than the one before, or none has a number."""
        numbers = self.columns.get("step", ())
        return all(map(lt, numbers, numbers[1:]))

    def changed(self, before: Step | None) -> Steps | None:
        """Those that do not repeat the number and the loss of the one before them, as progress bars do."""
        numbers = self.columns.get("step")
        if numbers is None or (self.increase and (before is None or before.step != numbers[0])):
            return self
        pairs = [*self.rows(("step", "loss"))]
        return self._where([*map(ne, pairs, [before and before[:2], *pairs])])

    def parts(self) -> Iterator[Steps]:
        """Parts in which the numbers increase; of neighbours with the same number, the last."""
        if self.increase:
            yield self
            return
        numbers = self.columns["step"]
        kept = self._where([*map(ne, numbers, numbers[1:]), True]) or self
        numbers = kept.columns["step"]
        ends = [*compress(count(1), map(gt, numbers, numbers[1:])), len(kept)]
        for begin, end in zip([0, *ends], ends, strict=False):
            yield Steps({name: values[begin:end] for name, values in kept.columns.items()}, end - begin)

    def _where(self, kept: Sequence[bool]) -> Steps | None:
        if all(kept):
            return self
        size = sum(kept)
        return Steps({n: [*compress(v, kept)] for n, v in self.columns.items()}, size) if size else None

    @cached_property
    def last(self) -> Step:
        return Step(*(self.columns[name][-1] if name in self.columns else None for name in Step._fields))


def _rows(columns: Sequence[Sequence[Any] | None], size: int) -> Iterator[tuple[Any, ...]]:
    return zip(*(one or repeat(None, size) for one in columns), strict=True) if columns else repeat((), size)


class CompileCount(NamedTuple):
    """One line of the summary that neuron_parallel_compile prints on each node: `what` is graphs, successful or
    failed."""

    what: str
    count: int  # type: ignore[assignment]  # tuple.count is not used


class CompileError(NamedTuple):
    """A graph that failed to compile. Code -9: the host ran out of memory."""

    code: int


class CacheStatus(NamedTuple):
    """The progress of a node's compilation."""

    remaining: int
    locked: int
    failed: int
    done: int
    total: int


class Start(NamedTuple):
    """A stage begins, for the first time or again.

    Attributes:
        time: seconds since 1970.
        attempt: 0, 1, ... on Kubernetes. None on Slurm, whose log has each of them.
    """

    stage: str
    time: int
    attempt: int | None = None


Record = Step | CompileCount | CompileError | CacheStatus | Start
Reader = Callable[[str], Iterator[tuple[int, Step]]]
"""Finds the steps in a line: where each begins, and what it is."""


class Form:
    """The form of a line that a trainer usually prints: many such lines are read at once.

    Attributes:
        marks: of its reader.
    """

    def __init__(self, text: str, marks: Sequence[str], read: Reader):
        self._pattern, self._read = Pattern(rf"(?m){text} *$".encode()), read
        self.marks = [mark.encode() for mark in marks]

    def steps(self, text: bytes, words: Collection[bytes], also: Collection[bytes] = ()) -> Steps | None:
        """The steps of many lines. None if a line with a step may have another form.

        Args:
            words: the marks of all readers of a program.
            also: those of the reader of any program's lines, which this form's lines may have.
        """
        at = min((at for word in self.marks if (at := text.find(word)) >= 0), default=0)
        line = text[text.rfind(b"\n", 0, at) + 1 : end if (end := text.find(b"\n", at)) >= 0 else len(text)]
        first = self._pattern.search(line)
        if not first:
            return None
        found, names = self._pattern.split(text), self._pattern.groupindex
        size = len(names) + 1
        number = len(found) // size
        if max(map(len, found[::size])) > LONGEST_LINE - _ROOM:
            return None
        # what is around them; a word may end in the beginning of a usual line
        begin = line[first.start() : min(first.start() + max(map(len, words)), first.start(1))]
        around, rest = line[: first.start()] + begin + line[first.end() :], begin.join(found[::size])
        if not all(contained(words, one).issubset(self.marks) for one in (line, rest)):
            return None
        if any(rest.count(word) != number * around.count(word) for word in (b"\x1b", *self.marks, *also)):
            return None
        try:
            steps = Steps(dict(_values(name, found[at::size]) for name, at in names.items()), number)
        except ValueError:  # not a number, or one that no step has
            return None
        alone = self._read(re.sub(COLOUR, "", line.decode(errors="replace")))
        return steps if [step for _, step in alone] == [next(iter(steps))] else None


def contained(words: Iterable[bytes], text: bytes) -> set[bytes]:
    """Those of the words that are in a text."""
    # a byte that is nowhere is found out sooner than a word
    return {word for word in words if all(map(text.__contains__, word)) and word in text}


_WHOLE = ("step", "total_steps", "global_batch_size")


def _values(name: str, column: Sequence[bytes]) -> tuple[str, list[Any]]:
    """The field of a column, and the field's values."""
    import pydantic_core  # several times as fast as float; not for commands that read no log

    text = b",".join(column)
    if name == "tokens_per_second":
        text = b" ".join(column).replace(b",", b"").replace(b" ", b",")
    whole = text.replace(b",", b"").isdigit()
    try:
        values: list[Any] = pydantic_core.from_json(b"[%b]" % text)
    except ValueError:  # 007 and .5 are none in JSON
        values = [*map(int if whole else float, text.split(b","))]
    if sum(values) >= _MOST:  # no number has a sign
        raise ValueError(max(values))
    if name in _WHOLE:
        return name, values if whole else [*map(int, values)]
    if text.count(b".") != len(values):  # in JSON, a number without a dot may be an int
        values = [*map(float, values)]
    return ("seconds", [value / 1000 for value in values]) if name == "milliseconds" else (name, values)


class MarkedReader:
    """A reader of lines that contain one of some words: most lines of a log have none, and are skipped. Made by `reads`."""

    def __init__(self, marks: tuple[str, ...], read: Reader, usual: Sequence[str] = ()):
        self.marks, self.read = marks, read
        self.forms = [Form(text, marks, read) for text in usual]

    def __call__(self, text: str) -> Iterator[tuple[int, Step]]:
        return self.read(text)


def reads(*marks: str, usual: str | Sequence[str] = ()) -> Callable[[Reader], MarkedReader]:
    """Decorator of a reader: its records are only in lines with one of these words. A reader without it reads every line, which is slow.

    Args:
        usual: the ends of the lines that training scripts usually print, as regular expressions; such lines are read many at a time. Each has
            a group for each field of `Step` that the reader finds in such a line (or `milliseconds`, for `seconds`), of `USUAL`, `DECIMAL` or
            `WHOLE`, and no other group. The reader finds one step in such a line. No other reader finds any: what varies in such a line has
            no place for a mark.
    """
    forms = (usual,) if isinstance(usual, str) else usual
    return lambda read: MarkedReader(marks, read, forms)


# the number of digits is limited: otherwise a line of digits would take minutes
NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|nan|inf|-inf|NaN"
"""A number, as a regular expression."""
DECIMAL, WHOLE = r"[0-9.]{1,21}", r"[0-9]{1,15}"
USUAL = DECIMAL + r"[-+eE0-9]{0,5}"
"""What looks like a number, in the form of a usual line: shorter than what readers accept, so that both read the same."""
COLOUR = r"\x1b\[[0-9;]{0,20}m"
"""A control sequence of a terminal, as a regular expression."""
NO_NUMBER = "not a number"
"""What is shown for a value that is nan or infinite, of which a step has None."""
_MOST = 1e15
LONGEST_LINE = 100_000
"""Only this much of a line is read; lines of a training are shorter."""
_ROOM = 5000
"""More than a usual line has."""


def parse_number(text: str | None) -> float | None:
    """A finite number from a log; None for anything else."""
    if text is None:
        return None
    value = float(text)
    return value if -_MOST < value < _MOST else None


class Pattern:
    """A regular expression that is compiled when it is used first: a list of the kinds of jobs needs none."""

    def __init__(self, text: str | bytes):
        self._text = text

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text), name)
        setattr(self, name, method)
        return method
