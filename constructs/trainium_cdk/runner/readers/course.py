"""Facts that only all lines of a training tell: the step of an epoch's counter, the copies of a step that count, and the time of a step."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field

from . import Evaluation, Record, Step
from .step_lines import StepLine

_BEST = {"known": 4, "step": 3, "part": 2, "bar": 2, "dictionary": 2, "epoch": 1}
"""Where a log tells of the same training in several forms, the one with the largest number counts."""
_OTHER_STAGE = -1.0
"""The loss that a pipeline's ranks print which have none (TorchTitan)."""
_DATE = re.compile(
    r"(?P<year>20\d\d)[-/](?P<month>\d\d|[A-Z][a-z]{2})[-/](?P<day>\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)(?P<part>[.,]\d{1,6})?"  # Neuron: 2026-Nov-24
    r"|(?P<name>[A-Z][a-z]{2}) (?P<date>[ \d]\d) (?P<at>\d\d:\d\d:\d\d) (?P<of>20\d\d)"  # asctime: bert-large's lines
    r"|(?P<american>\d\d/\d\d)/(?P<its>20\d\d) (?P<time>\d\d:\d\d:\d\d)"  # the examples of Hugging Face
)
_CLOCK = re.compile(r"(?:^|\[|\s|Time=)(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(?=[\]\s,]|$)")
_UNIX = re.compile(r"\"(?:time|timestamp|ts|created)\": {0,2}(1\d{9}(?:\.\d{1,9})?)(?=[,} ])")
_MONTHS = {
    name: i
    for i, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_DAY = 86_400.0
_MOST_EPOCHS = 1000
"""Bars whose beginning is known."""
_PARTS = ("step", "part", "bar", "progress", "ended")
_BARS = ("bar", "progress", "ended")
_JUMP, _OWN = 5, 30
"""After a resume, tqdm's bar jumps from 0 over the steps of before, as if they took no time: so many steps later, its rate no longer has them."""


def time_of(line: str) -> dt.datetime | None:
    """The first date and time in a line; nodes log in UTC."""
    found = _DATE.search(line[:1000])
    if not found:
        return None
    year, month, day, clock = (found[name] for name in ("year", "month", "day", "clock"))
    if found["name"]:
        year, month, day, clock = (found[name] for name in ("of", "name", "date", "at"))
    elif found["american"]:
        (month, day), year, clock = found["american"].split("/"), found["its"], found["time"]
    hour, minute, second = map(int, clock.split(":"))
    try:
        at = dt.datetime(
            int(year), _MONTHS.get(month) or int(month), int(day), hour, minute, second, tzinfo=dt.timezone.utc
        )
    except ValueError:
        return None
    return at + dt.timedelta(seconds=float(f"0.{found['part'][1:]}") if found["part"] else 0)


def _seconds_of(line: str) -> float | None:
    """Read the time of a line, in seconds since any moment. Without a date, since midnight."""
    if (at := time_of(line)) is not None:
        return at.timestamp()
    if (found := _UNIX.search(line[:1000])) is not None:
        return float(found[1])
    found = _CLOCK.search(line[:200])
    if found is None:
        return None
    hour, minute, second = (int(one) for one in found.groups()[:3])
    return hour * 3600.0 + minute * 60 + second + float(f"0.{found[4] or 0}")


@dataclass
class Course:
    """Takes a stage's lines in their order, and gives their records.

    Attributes:
        last: the last step. at: where a progress bar without a loss stands.
        total: the steps that the log announces.
        summary: what Hugging Face's Trainer tells at the end.
        _beside: values of lines without a loss, since the last step. Levanter and DeepSpeed have such lines.
    """

    last: Step | None = None
    at: Step | None = None
    total: int | None = None
    summary: Step | None = None
    _told: dict[str, float | None] = field(default_factory=dict, repr=False)
    _form: int = 0
    _by: str = ""
    _rank: str = ""
    _beside: Step | None = None
    _losses: bool = False
    _stamp: tuple[float, int] | None = field(default=None, repr=False)
    _ended: bool = False
    _bars: dict[tuple[str, int | None], tuple[int, int]] = field(default_factory=dict, repr=False)
    _epochs: _Epochs = field(default_factory=lambda: _Epochs(), repr=False)

    def take(self, line: StepLine, text: str, by: str) -> list[Record]:
        """The records of a line.

        Args:
            by: the node and the worker that it begins with. Where several print the same, the first one's count.
        """
        step = self._epochs.take(line)
        if step is not None and line.form in _BARS:
            step = self._rated(step, by)
        if line.form in ("title", "total", "summary", "progress", "ended"):
            self._note(line.form, step)
            step = None
        elif line.form == "dictionary" and step is not None and self.at is not None:
            step = self._placed(step)
        records: list[Record] = []
        if step is not None and self._counts(line.form, by, line.rank, step):
            step = _filled(self._completed(step, text), self._beside)
            if line.bare and self._losses:
                self._beside = step
            else:
                self.last, self._beside, self._losses = step, None, not line.bare
                records.append(step)
        for one in line.trials:
            at = one.step if step is None else step.step
            if (step is None and one.step is None) or self._told.get(
                one.of
            ) != one.loss:  # a progress bar repeats the last one
                records.append(one._replace(step=at if at is not None else self.last and self.last.step))
            self._told[one.of] = one.loss
        return records

    @property
    def position(self) -> Step | None:
        """Return the training's position: its last step, or the newer one of a progress bar or a line without a loss."""
        last, at = self.last, self.at or self._beside
        if at is None or (
            last is not None and (last.total_steps != at.total_steps or (last.step or 0) >= (at.step or 0))
        ):
            return last
        return at

    def known(self, record: Step | Evaluation, text: str, by: str) -> list[Record]:
        """The same, of what the reader of a program has found."""
        if isinstance(record, Evaluation):
            return self.take(StepLine(None, (record,)), text, by)
        return self.take(StepLine(record, (), "known" if record.step is not None else "dictionary"), text, by)

    def restarted(self) -> None:
        """The program has begun again: the time since its last step is not a time of a step."""
        self._stamp = None

    def _note(self, form: str, step: Step | None) -> None:
        if form in ("progress", "ended") and (
            self.last is None or self.last.total_steps in (None, step and step.total_steps)
        ):
            self.at, self._ended = step, form == "ended"
        elif form == "total" and step is not None:
            self.total = step.total_steps
        elif form == "summary":
            self.summary = step

    def _placed(self, step: Step) -> Step:
        """A dictionary's step, where a bar of the training tells it. A bar that does not move between two of them is of something else."""
        at, last = self.at, self.last
        if at is None or self._ended or (last and last.step == at.step and last[1:3] != step[1:3]):
            self.at = None
            return step
        return step._replace(step=at.step, total_steps=at.total_steps, seconds=at.seconds)

    def _rated(self, step: Step, by: str) -> Step:
        """Remove the rate of a bar that has not counted enough steps of its own since it jumped. Each node may print one."""
        now, bar = step.step or 0, (by, step.total_steps)
        before, since = self._bars.get(bar, (-1, -_OWN))
        since = now if before == 0 and now > _JUMP else since if now >= before else -_OWN
        if len(self._bars) > _MOST_EPOCHS:
            self._bars.clear()
        self._bars[bar] = now, since
        return step._replace(seconds=None) if now - since < _OWN else step

    def _counts(self, form: str, by: str, rank: str, step: Step) -> bool:
        if step.loss == _OTHER_STAGE:
            return False
        if _BEST[form] > self._form:
            self._form, self._by, self._rank = _BEST[form], by, rank
        self._rank = self._rank or rank
        return _BEST[form] == self._form and by == self._by and rank in ("", self._rank)

    def _completed(self, step: Step, text: str) -> Step:
        """Add the facts that the line does not tell: the last step, the time of a step by time stamps, the throughput of both."""
        seconds, now, at = step.seconds, _seconds_of(text), step.step
        if now is not None and at is not None:
            then, since = self._stamp or (now, at)
            took = now - then
            took += _DAY if took < -_DAY / 2 else 0  # midnight, without a date
            if took > 0 and at > since and seconds is None:
                seconds = took / (at - since)
            if took != 0 or at <= since:  # stamps of whole seconds: from the first step of one to that of the next
                self._stamp = now, at
        total = step.total_steps or (self.total if self.total and (step.step or 0) <= self.total else None)
        made = step._replace(total_steps=total, seconds=seconds)
        if made.throughput is None and made.global_batch_size and step.seconds:
            made = made._replace(throughput=made.global_batch_size / step.seconds)
        return made


def _filled(step: Step, beside: Step | None) -> Step:
    """A step with the values that it lacks itself, but its loss."""
    values = beside._asdict() if beside else {}
    return step._replace(**{name: values[name] for name in values if name != "loss" and getattr(step, name) is None})


@dataclass
class _Epochs:
    """Makes one count of the counters of epochs."""

    epoch: int | None = None
    epochs: int | None = None
    first: int = 1
    _at: int | None = None
    _ended: int | None = None
    _made: int = 0
    _begins: dict[int, int] = field(default_factory=dict)
    _whole: bool = False

    def take(self, line: StepLine) -> Step | None:
        """A line's step, counted from the first epoch on."""
        if line.epoch is not None and line.epoch != self.epoch:
            self._begin(line.epoch, line.first)
        self.epochs = line.epochs or self.epochs
        step, epoch = line.step, self.epoch if line.form != "progress" else line.epoch
        if step is None or step.step is None or epoch is None or line.form not in _PARTS:
            return step
        at, total = step.step, step.total_steps
        if (
            self._at is None and self._ended is not None
        ):  # a counter that epochs do not begin again is of the whole training
            self._whole = line.form in ("step", "part") and at > self._ended
        self._at = at
        if not self._whole:
            at += max(0, epoch - self.first) * total if total else self._begins[epoch]
            if line.epoch is not None or line.form != "step" or self._ended is not None:
                total = total * self.epochs if total and self.epochs else None
        self._made = at
        return step._replace(step=at, total_steps=total)

    def _begin(self, epoch: int, first: int) -> None:
        self._ended = self._at if self.epoch is not None and epoch > self.epoch else None
        self.epoch, self._at = epoch, None
        self._begins.setdefault(epoch, self._made)
        if len(self._begins) > _MOST_EPOCHS:
            del self._begins[next(iter(self._begins))]
        self.first = first if self.first and epoch else 0
