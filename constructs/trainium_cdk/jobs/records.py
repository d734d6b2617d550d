"""What is read in training logs: the records, and what the readers of job kinds share. Readers never raise, whatever the bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from operator import lt
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
    """Consecutive training steps, at least one, as columns: a list of values for each field of `Step` that their lines have."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]):
        self.columns = columns

    def __iter__(self) -> Iterator[Step]:
        return map(Step, *(self.columns.get(name, repeat(None)) for name in Step._fields))

    def __len__(self) -> int:
        return min(map(len, self.columns.values()))

    @cached_property
    def increase(self) -> bool:
        """Whether each has a higher number than the one before."""
        numbers = self.columns.get("step")
        return numbers is not None and all(map(lt, numbers, numbers[1:]))

    @property
    def last(self) -> Step:
        return Step(**{name: values[-1] for name, values in self.columns.items()})


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


class MarkedReader:
    """A reader of lines that contain one of some words: most lines of a log have none, and are skipped. Made by `reads`."""

    def __init__(self, marks: tuple[str, ...], read: Reader, usual: str = ""):
        self.marks, self.read = marks, read
        self.usual = Pattern(rf"(?m){usual} *$".encode()) if usual else None

    def __call__(self, text: str) -> Iterator[tuple[int, Step]]:
        return self.read(text)

    def steps(self, text: bytes) -> Steps | None:
        """The steps of many lines at once. None if a line with a mark is not a usual one."""
        if not self.usual:
            return None
        rows, names = self.usual.findall(text), self.usual.groupindex
        if not rows or any(text.count(mark.encode()) != len(rows) for mark in self.marks):
            return None
        return Steps({n: [*map(_TYPES.get(n, float), c)] for n, c in zip(names, zip(*rows, strict=True), strict=True)})


_TYPES: Mapping[str, Callable[[bytes], float]] = {"step": int, "total_steps": int, "global_batch_size": int}


def reads(*marks: str, usual: str = "") -> Callable[[Reader], MarkedReader]:
    """Decorator of a reader: its records are only in lines with one of these words. A reader without it reads every line, which is slow.

    Args:
        usual: a regular expression of the end of the lines that training scripts usually print, which are then read many at a time: with each mark
            once, a group for each field of `Step` that they have, of `WHOLE` or `USUAL`, and what the reader finds in it.
    """
    return lambda read: MarkedReader(marks, read, usual)


# the number of digits is limited: otherwise a line of digits would take minutes
NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|nan|inf|-inf|NaN"
"""A number, as a regular expression."""
USUAL, WHOLE = r"[0-9]{1,15}\.[0-9]{1,30}", r"[0-9]{1,15}"
"""Numbers below 1e15, and whole ones."""


def parse_number(text: str | None) -> float | None:
    """A finite number from a log; None for anything else."""
    if text is None:
        return None
    value = float(text)
    return value if -1e15 < value < 1e15 else None


class Pattern:
    """A regular expression that is compiled when it is used first: a list of the kinds of jobs needs none."""

    def __init__(self, text: str | bytes):
        self._text = text

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text), name)
        setattr(self, name, method)
        return method
