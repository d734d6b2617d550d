"""The course of one metric over the steps, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainium_cdk.client.drawing import number
from trainium_cdk.runner.readers import Evaluation, Step

POINTS = 1000
"""The most points that a curve keeps: more than a screen has pixels for one chart."""

METRICS: Mapping[str, str] = {
    "loss": "loss",
    "throughput": "sequences/s",
    "tokens_per_second": "tokens/s of one worker",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "seconds": "seconds a step",
    "validation_loss": "validation loss",
    "test_loss": "test loss",
}
"""What is drawn, with the label of its axis: fields of `Step`, and the losses of evaluations."""


def value(record: Step | Evaluation, name: str) -> float | None:
    """The value of a metric in a record."""
    if isinstance(record, Evaluation):
        return record.loss if name == f"{record.of}_loss" else None
    found: float | None = getattr(record, name, None)
    return found


def points_of_each(curves: int) -> int:
    """The most points of each of several curves in one chart, so that a thousand curves are drawn quickly, and make a small page.

    >>> points_of_each(1), points_of_each(200), points_of_each(1000)
    (300, 10, 10)
    """
    return max(10, min(300, 1_200 // curves))


@dataclass
class Curve:
    """Any number of points (step, value); each run of neighbours becomes its mean, so that at most `POINTS` are kept.

    After a restart from a checkpoint, steps come again: the later ones replace the earlier.
    """

    points: list[tuple[float, float]] = field(default_factory=list)
    _each: int = 1
    _newest: list[tuple[float, float]] = field(default_factory=list)

    def add(self, step: float, value: float) -> None:
        """Take the next point."""
        for points in (self._newest, self.points):
            while points and points[-1][0] >= step:
                points.pop()
        if len(self._newest) == self._each:  # the newest may be replaced
            self.points.append(_middle(self._newest))
            self._newest.clear()
            if len(self.points) == POINTS:
                self.points = [_middle(pair) for pair in zip(self.points[::2], self.points[1::2], strict=True)]
                self._each *= 2
        self._newest.append((step, value))

    def all(self) -> list[tuple[float, float]]:
        """The points so far, the newest included."""
        return [*self.points, *([_middle(self._newest)] if self._newest else [])]

    def few(self, most: int) -> list[tuple[float, float]]:
        """At most so many points: neighbours become their mean."""
        points = self.all()
        each = -(-len(points) // most)
        if each <= 1:
            return points
        return [_middle(points[at : at + each]) for at in range(0, len(points), each)]


def _middle(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The mean of points."""
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


_WINDOW = 20.0
"""Seconds over which times of a step are averaged, if they are made of whole-second time stamps."""


class Curves(dict[str, Curve]):
    """A curve of each metric that has a value.

    Attributes:
        step: the newest one; trainers that print none are counted.
        counted: whether it is of such a trainer: the number of steps that it has logged.
        last: the last value of each.
        units: of the speeds, where the program prints others than `METRICS` has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None
        self.counted = False
        self.units: dict[str, str] = {}
        self.last: dict[str, float] = {}
        self._at: dict[str, int] = {}
        self._timed = self._whole = 0.0

    def add(self, new: Step | Evaluation) -> int:
        """Take the next step or evaluation of the log. Returns its step: an evaluation without one has the last step's."""
        at = (self.step or 0) + isinstance(new, Step) if new.step is None else new.step
        if isinstance(new, Step):
            self.step, self.counted = at, new.step is None
            if new.unit:
                self.units["tokens_per_second" if new.throughput is None else "throughput"] = new.unit
        for name in METRICS:
            if (found := value(new, name)) is not None:
                if name == "seconds":
                    took = found * max(0, at - self._at.get(name, at))
                    self._timed, self._whole = self._timed + took, self._whole + took * (abs(took - round(took)) < 1e-6)
                self.last[name], self._at[name] = found, at
                self.setdefault(name, Curve()).add(at, found)
        return at

    def few(self, name: str, most: int) -> list[tuple[float, float]]:
        """At most so many points of a metric. With whole-second time stamps, each is the mean of 20 s; none if these are fewer than three."""
        coarse = name == "seconds" and self._whole > self._timed / 2
        most = min(most, int(self._timed / _WINDOW)) if coarse else most
        return self[name].few(most) if name in self and most > 2 else []

    def label(self, name: str) -> str:
        """Return the label of a metric, with its unit."""
        return self.units.get(name, METRICS[name])

    def missing(self, name: str) -> str:
        """Describe a metric without a value in the newest step, as when the loss is NaN; empty if it has one."""
        return "" if self._at[name] == self.step else f"no number since step {self._at[name]:,}"

    def newest(self, name: str) -> str:
        """The last value of a metric, or that there is none."""
        return self.missing(name) or number(self.last[name])
