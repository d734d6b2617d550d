"""The course of one metric over the steps, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainium_cdk.jobs.records import Step, Steps

POINTS = 1000
"""The most points that a curve keeps: more than a screen has pixels for one chart."""

METRICS: Mapping[str, str] = {
    "loss": "loss",
    "throughput": "sequences/s",
    "tokens_per_second": "tokens/s of one worker",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
}
"""The fields of `Step` that are drawn, with the label of their axis."""


@dataclass
class Curve:
    """Any number of points (step, value); those of each run of neighbours become their mean, so that at most `POINTS` are kept.

    After a restart from a checkpoint, steps come again: the later ones replace the earlier.
    """

    points: list[tuple[float, float]] = field(default_factory=list)
    _each: int = 1
    _steps: list[float] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)

    def add(self, steps: Sequence[float], values: Sequence[float]) -> None:
        """Take points, of which each step is higher than the one before."""
        while self._steps and self._steps[-1] >= steps[0]:
            del self._steps[-1], self._values[-1]
        while self.points and self.points[-1][0] >= steps[0]:
            self.points.pop()
        self._steps += steps
        self._values += values
        begin = 0
        while len(self._steps) - begin >= self._each:
            self.points.append(self._mean(begin, begin + self._each))
            begin += self._each
            if len(self.points) >= POINTS:
                pairs = zip(self.points[::2], self.points[1::2], strict=True)
                self.points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
                self._each *= 2
        del self._steps[:begin], self._values[:begin]

    def _mean(self, begin: int, end: int) -> tuple[float, float]:
        return sum(self._steps[begin:end]) / (end - begin), sum(self._values[begin:end]) / (end - begin)

    def all(self) -> list[tuple[float, float]]:
        """The points so far, the newest included."""
        return [*self.points, *([self._mean(0, len(self._steps))] if self._steps else [])]


class Curves(dict[str, Curve]):
    """A curve of each metric that has a value.

    Attributes:
        step: the newest one; trainers that print none are counted.
        last: its values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None
        self.last: dict[str, float] = {}

    def add(self, new: Step | Steps) -> None:
        if isinstance(new, Steps) and not new.increase:
            for step in new:
                self.add(step)
            return
        if isinstance(new, Steps):
            steps, columns = new.columns["step"], new.columns
        else:
            steps = [(self.step or 0) + 1 if new.step is None else new.step]
            columns = {name: [value] for name, value in zip(new._fields, new, strict=True) if value is not None}
        self.step = steps[-1]
        for name in METRICS:
            if values := columns.get(name):
                self.last[name] = values[-1]
                self.setdefault(name, Curve()).add(steps, values)
