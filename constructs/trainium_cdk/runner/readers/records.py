"""What is found in the log of a job, and what the readers of its lines share. Readers never raise, whatever the bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Union


class Step(NamedTuple):
    """One training step. A field is None if the line does not have it.

    Attributes:
        step: None for Hugging Face's Trainer.
        throughput: sequences per second, of all workers.
        seconds: time of one step.
        tokens_per_second: of one worker, as TorchTitan prints it, unless `unit` says something else.
        unit: of the throughput, as it is printed (`samples/s`); without a throughput, of the tokens. None: as above.
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
    unit: str | None = None


class Evaluation(NamedTuple):
    """The loss of a validation or a test.

    Attributes:
        step: of the training; None if the line does not have it.
        loss: None if it is no finite number.
        of: `validation` or `test`.
    """

    step: int | None
    loss: float | None
    of: str = "validation"


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


Record = Union[Step, Evaluation, CompileCount, CompileError, CacheStatus, Start]
Reader = Callable[[str], Iterator["tuple[int, Step | Evaluation]"]]
"""Finds the steps in a line: where each begins, and what it is."""


class MarkedReader:
    """A reader of lines that contain one of some words: most lines of a log have none, and are skipped. Made by `reads`."""

    def __init__(self, marks: tuple[str, ...], read: Reader):
        self.marks, self.read = marks, read

    def __call__(self, text: str) -> Iterator[tuple[int, Step | Evaluation]]:
        return self.read(text)


def reads(*marks: str) -> Callable[[Reader], MarkedReader]:
    """Decorator of a reader: its records are only in lines with one of these words. A reader without it reads every line, which is slow."""
    return lambda read: MarkedReader(marks, read)


# the number of digits is limited: otherwise a line of digits would take minutes
NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|nan|inf|-inf|NaN"
"""A number, as a regular expression."""
COLOUR = r"\x1b\[[0-9;]{0,20}m"
"""A control sequence of a terminal, as a regular expression."""
NO_NUMBER = "not a number"
"""What is shown for a value that is nan or infinite, of which a step has None."""
LONGEST_LINE = 100_000
"""Only this much of a line is read; lines of a training are shorter."""
_MOST = 1e15


def parse_number(text: str | None) -> float | None:
    """A finite number from a log; None for anything else."""
    if text is None:
        return None
    value = float(text)
    return value if -_MOST < value < _MOST else None


class Pattern:
    """A regular expression that is compiled when it is used first: a list of the kinds of jobs needs none."""

    def __init__(self, text: str):
        self._text = text

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text), name)
        setattr(self, name, method)
        return method
