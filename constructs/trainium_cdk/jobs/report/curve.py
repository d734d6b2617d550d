"""The course of one metric over the steps, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add

from trainium_cdk.drawing.chart import number
from trainium_cdk.jobs.records import Steps

POINTS = 1000
"""The most points that a curve keeps: more than a screen has pixels for one chart."""
_SHORT = 16
"""Up to so many neighbours, all runs of a piece are added at once; longer ones one by one, which then is quicker."""

METRICS: Mapping[str, str] = {
    "loss": "loss",
    "throughput": "sequences/s",
    "tokens_per_second": "tokens/s of one worker",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
}
"""The fields of `Step` that are drawn, with the label of their axis."""


def points_of_each(curves: int) -> int:
    """The most points of each of several curves in one chart, so that those of a thousand are drawn quickly, and make a small page.

    >>> points_of_each(1), points_of_each(200), points_of_each(1000)
    (1000, 80, 25)
    """
    return max(25, min(POINTS, 16_000 // curves))


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
        begin, last = 0, len(self._steps) - 1  # the newest may be replaced
        while groups := min((last - begin) // self._each, POINTS - len(self.points)):
            end = begin + groups * self._each
            self.points += zip(self._means(self._steps, begin, end), self._means(self._values, begin, end), strict=True)
            begin = end
            if len(self.points) >= POINTS:
                pairs = zip(self.points[::2], self.points[1::2], strict=True)
                self.points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
                self._each *= 2
        del self._steps[:begin], self._values[:begin]

    def _means(self, column: list[float], begin: int, end: int) -> list[float]:
        """Of each run of neighbours."""
        each = self._each
        if column is self._steps and column[end - 1] - column[begin] == end - begin - 1:  # one after the other
            return [
                (a + b) / 2 for a, b in zip(column[begin:end:each], column[begin + each - 1 : end : each], strict=True)
            ]
        if each > _SHORT:
            return [sum(column[at : at + each]) / each for at in range(begin, end, each)]
        sums = column[begin:end:each]
        for at in range(begin + 1, begin + each):
            sums = [*map(add, sums, column[at:end:each])]
        return [one / each for one in sums]

    def all(self) -> list[tuple[float, float]]:
        """The points so far, the newest included."""
        rest = [(sum(self._steps) / len(self._steps), sum(self._values) / len(self._values))] if self._steps else []
        return [*self.points, *rest]

    def few(self, most: int) -> list[tuple[float, float]]:
        """At most so many points: those of neighbours become their mean."""
        points = self.all()
        each = -(-len(points) // most)
        if each <= 1:
            return points
        xs, ys = zip(*points, strict=True)
        return [(_mean(xs[at : at + each]), _mean(ys[at : at + each])) for at in range(0, len(points), each)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class Curves(dict[str, Curve]):
    """A curve of each metric that has a value.

    Attributes:
        step: the newest one; trainers that print none are counted.
        last: the last value of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None
        self.last: dict[str, float] = {}
        self._at: dict[str, int] = {}

    def add(self, new: Steps) -> None:
        """Take the next steps of the log."""
        for part in new.parts():
            steps = part.numbers(self.step)
            self.step = steps[-1]
            for name in METRICS:
                if values := part.columns.get(name):
                    self.last[name], self._at[name] = values[-1], steps[-1]
                    self.setdefault(name, Curve()).add(steps, values)

    def missing(self, name: str) -> str:
        """That the newest step has no value of a metric, as when the loss is NaN; empty if it has one."""
        return "" if self._at[name] == self.step else f"no number since step {self._at[name]:,}"

    def newest(self, name: str) -> str:
        """The last value of a metric, or that there is none."""
        return self.missing(name) or number(self.last[name])
