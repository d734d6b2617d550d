"""The course of one metric over the steps, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainium_cdk.jobs.records import Step

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
    _open: list[tuple[float, float]] = field(default_factory=list)

    def add(self, step: float, value: float) -> None:
        while self._open and self._open[-1][0] >= step:
            self._open.pop()
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        self._open.append((step, value))
        if len(self._open) < self._each:
            return
        self.points.append(_mean(self._open))
        self._open.clear()
        if len(self.points) >= POINTS:
            self.points = [_mean(self.points[i : i + 2]) for i in range(0, len(self.points), 2)]
            self._each *= 2

    def all(self) -> list[tuple[float, float]]:
        """The points so far, the newest included."""
        return [*self.points, *([_mean(self._open)] if self._open else [])]


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

    def add(self, step: Step) -> None:
        self.step = (self.step or 0) + 1 if step.step is None else step.step
        for name in METRICS:
            if (value := getattr(step, name)) is not None:
                self.last[name] = value
                self.setdefault(name, Curve()).add(self.step, value)


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
