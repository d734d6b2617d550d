"""The health of a running training, judged from one small record of each of its tasks. `decide` and `act` are pure; all else here reads and writes
records, which lie where the job can write (`records`).

    state/STAGE.RUN.TASK.pulse.json    `Pulse`, which the runner of a node writes every `spec.HealthRules.every` seconds (`pulse.py`)
    state/STAGE.RUN.order.json         `Order`, which the one who judges writes at most once in a run (`judge.py`); each node carries it out
    state/STAGE.found.json             `Found`: what is wrong now, and when the last step was, for `trn status`
    state/health.json                  `Tried`: what was done in all attempts, and what they cost

A step is an advance of what the program tells: a line of its log with a step, an event file, or the file `TRN_PROGRESS`.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from .. import files, records
from ..readers import Finding
from ..records import span
from ..spec import HealthRules

LEARNT, FEW = 10, 2
"""Steps after which the usual time between two is known, and after which the longest one so far is a measure. Before, nothing is done."""
TIMES, SLACK = 10, 3
"""A training hangs after so many times the usual time between two steps, and so many times the longest one."""
PHASES = {"compile": 7200.0, "checkpoint": 3600.0, "evaluation": 3600.0, "end": 7200.0}
"""What a program may do without a step, and for how many seconds; `end`: after its last step. One node that does so excuses all, which wait for it."""
RESTARTS = 3
"""Restarts of a training that hangs without a new step between them: then its program is at fault."""
NANS = 5
"""Steps in a row whose loss is not a number, after which the training is stopped: one alone may be survived, as with loss scaling."""
TOLD, ALL = 0.8, 1.0
"""Parts of a budget at which the job is reported, and stopped."""
_SHOWN, _LINE = 4, 120
_LAST = 5  # looks without a sign, at least
_SIGN_SECONDS = 10
HANG, NAN, STRAGGLER, SILENT, START, BUDGET, RESTARTED = (
    "hang",
    "nan",
    "straggler",
    "silent",
    "start",
    "budget",
    "restarted",
)
RESTART, SAVE, STOP, MOVE = "restart", "save", "stop", "move"
"""What is ordered: to start again; to save and end; to end at once, as what it would save is worth nothing; to start again on other nodes."""


@dataclass(frozen=True)
class Pulse:
    """The progress of a task, by the clock of its node, in seconds since 1970.

    Attributes:
        node, task: their numbers.
        beat: when this was written. began: when its program was started.
        step: the last one, where the program numbers them. rank: of the process that told it, if that is known.
        steps: advances that were seen. at: when the last one was; 0: none. first: seconds until the first one.
        usual, longest: seconds between two, in the middle and at most; the first ones are not in `longest`.
        gap: the most seconds between two of the first ones. quiet: the most before the first one. Without those in which a phase was seen.
        nans: steps in a row whose loss is not a number. nan_at: since when. nan_step: the first of them.
        phase: a name of `PHASES`, or empty. free: when the last one ended without a step; 0: none did.
        said: when it has printed last; 0: nothing yet. line: the last one.
        over: whether it has ended.
    """

    node: int
    task: int
    beat: float
    began: float
    step: Optional[int] = None
    rank: int = -1
    steps: int = 0
    at: float = 0.0
    first: float = 0.0
    usual: float = 0.0
    longest: float = 0.0
    nans: int = 0
    nan_at: float = 0.0
    nan_step: Optional[int] = None
    phase: str = ""
    free: float = 0.0
    said: float = 0.0
    line: str = ""
    over: bool = False
    gap: float = 0.0
    quiet: float = 0.0

    def waits(self, saved: float = 0.0) -> float:
        """Seconds without a step, a phase, or a change of its checkpoints; before the first step, since it began."""
        return self.beat - max(self.at or self.began, self.free, min(saved, self.beat))

    @property
    def patience(self) -> float:
        """Seconds without a step that are usual."""
        return max(TIMES * self.usual, SLACK * self.longest)

    @property
    def first_patience(self) -> float:
        """The same of few steps. Another shape is traced in the program's own process, unseen, for as long as the first one was."""
        return max(TIMES * max(self.gap, self.longest), self.quiet)


@dataclass(frozen=True)
class Order:
    """An order to all nodes of a run. `do`: RESTART, SAVE, STOP or MOVE."""

    do: str
    why: str
    at: float = 0.0


@dataclass(frozen=True)
class Found:
    """The present problems of a training. `stepped`: time of the last step, by the clock of its node, in seconds since 1970; 0: there was none."""

    findings: tuple[records.TimedFinding, ...] = ()
    stepped: float = 0.0


@dataclass(frozen=True)
class Tried:
    """The restarts, the times of steps, and the node time of all attempts.

    Attributes:
        restarts: of a training that hung, without a new step between them. step: the last one that was reached before.
        why, at: of the last restart, and when it was.
        usual, longest, first: seconds between two steps, and until the first one, before it: the next attempt need not learn them.
        run: the last run. seconds: of one node, which it took; before: which those before it took.
    """

    restarts: int = 0
    step: Optional[int] = None
    why: str = ""
    at: float = 0.0
    usual: float = 0.0
    longest: float = 0.0
    first: float = 0.0
    run: str = ""
    seconds: float = 0.0
    before: float = 0.0

    @property
    def spent(self) -> float:
        return self.before + self.seconds

    @property
    def patience(self) -> float:
        """Seconds without a step that were usual, also at the beginning."""
        return max(TIMES * self.usual, SLACK * max(self.longest, self.first))

    def took(self, run: str, seconds: float) -> "Tried":
        """Add so many seconds of this run."""
        if run == self.run:
            return dataclasses.replace(self, seconds=max(self.seconds, seconds))
        return dataclasses.replace(self, run=run, seconds=seconds, before=self.spent)


# --- what is wrong ----------------------------------------------------------------------------------------------------------------------


def decide(
    pulses: Sequence[Pulse], now: float, rules: HealthRules, before: Tried = Tried(), saved: float = 0.0
) -> list[Finding]:
    """Find the problems of a training.

    Args:
        pulses: of its tasks.
        now: by the clock of whoever judges. It is compared with nodes' clocks only where a node sends no sign.
        before: what is known of earlier attempts.
        saved: when something in the folder of its checkpoints changed last.
    """
    live = [one for one in pulses if not one.over]
    lost = max(rules.least / 2, _LAST * rules.every, _SIGN_SECONDS)
    heard = [one for one in live if now - one.beat <= lost]
    found = [
        Finding(
            SILENT,
            one.beat,
            one.node,
            one.rank,
            f"node {one.node}: its runner sends no sign for {span(now - one.beat)}",
        )
        for one in live
        if one not in heard
    ]
    lost_loss = [one for one in pulses if one.nans]
    found += [_nan(min(lost_loss, key=lambda one: (one.nan_at, one.task)))] if lost_loss else []
    steps = [one for one in heard if one.steps]
    excused = max((PHASES.get(one.phase, 0.0) for one in heard), default=0.0)
    lead = min(steps, key=lambda one: one.waits(), default=None)
    learnt = lead is not None and lead.steps >= LEARNT
    if lead is None and heard and before.first:
        lead = min(heard, key=lambda one: one.waits())
    few = lead is not None and lead.steps >= FEW
    if lead is None or not (few or before.first):
        return found + _start(heard, rules, excused)
    usual = [0.0 if learnt else before.patience, *(one.patience for one in steps)]
    first = [one.first_patience for one in heard]
    patience = max(rules.least, excused, *(usual if learnt or before.first else first))
    rests = [one.beat - one.free for one in heard if one.free]  # the others have waited for it
    if min([lead.waits(saved), *rests]) > patience:
        return [*found, _hang(heard, lead)]
    if not learnt:
        return found + _start(heard, rules, excused)
    # a node that has told steps as others do, and tells none any more while they go on
    rested = min(rests, default=patience) >= patience
    goes_on = rested and min((one.beat - one.at for one in steps), default=patience) < patience / 2
    behind = [one for one in steps if goes_on and one.waits(saved) > patience and one.steps >= LEARNT and not one.phase]
    return found + [
        Finding(
            STRAGGLER, one.at, one.node, one.rank, f"no step for {span(one.waits())}, while others continue: {_at(one)}"
        )
        for one in behind[:_SHOWN]
    ]


def _nan(one: Pulse) -> Finding:
    since = "" if one.nan_step is None else f" since step {one.nan_step}"
    return Finding(NAN, one.nan_at, one.node, one.rank, f"the loss is not a number{since}, in {one.nans} steps")


def _start(heard: Sequence[Pulse], rules: HealthRules, excused: float) -> list[Finding]:
    """A first compilation may take an hour: it is only reported."""
    waits = [one.beat - max(one.said, one.at, one.began) for one in heard]
    if not waits or min(waits) <= max(rules.start, excused):
        return []
    first = min(heard, key=lambda one: max(one.said, one.began))
    steps = f"fewer than {LEARNT} steps" if any(one.steps for one in heard) else "no step"
    told = f"{steps} so far, and nothing printed for {span(min(waits))}"
    return [Finding(START, first.beat - min(waits), evidence=f"{told}; {_at(first)}")]


def _hang(heard: Sequence[Pulse], lead: Pulse) -> Finding:
    """Describe a hang with the tasks that are behind. If tasks report different steps, those at the lowest; else those whose last line is unlike
    most others', and those that have printed nothing for longest."""
    steps = [one.step for one in heard if one.step is not None and one.steps]
    low, high = (min(steps), max(steps)) if steps else (0, 0)
    if low < high:
        behind = [one for one in heard if one.steps and one.step == low]
        rest = f"; others are at step {high}"
    else:
        like, telling = Counter(map(_shape, heard)), Counter(one.steps > 0 for one in heard)
        unlike = [one for one in heard if like[_shape(one)] == 1 < telling[one.steps > 0]]
        behind = sorted(heard, key=lambda one: (one not in unlike, one.said, one.task))
        rest = ""
    usual = f"usually one in {span(lead.usual)}" if lead.steps >= LEARNT else f"{lead.steps} in this attempt"
    places = "; ".join(_at(one) for one in behind[:_SHOWN])
    more = f"; and {len(behind) - _SHOWN} more" if len(behind) > _SHOWN else ""
    first = behind[0]
    since = lead.at or lead.began
    text = f"no step for {span(lead.waits())} ({usual}): {places}{more}{rest}"
    return Finding(HANG, since, first.node, first.rank, text)


def _shape(one: Pulse) -> "tuple[bool, str]":
    """Return whether a task has made a step, and its last line without numbers."""
    return one.steps > 0, re.sub(r"[\d.]+", "0", one.line)


def _at(one: Pulse) -> str:
    """Describe a task's position, with its last line."""
    where = f"node {one.node}" + ("" if one.rank < 0 else f", rank {one.rank}")
    step = f" at step {one.step}" if one.step is not None else ""
    line = f", last line: {records.one_line(one.line)[:_LINE]}" if one.line else ""
    return f"{where}{step}{line}"


# --- what is done -----------------------------------------------------------------------------------------------------------------------


def act(
    findings: Sequence[Finding], pulses: Sequence[Pulse], rules: HealthRules, tried: Tried
) -> tuple[Optional[Order], Tried]:
    """Return the order for these findings by the rules of the environment, and the new `Tried`."""
    for one in findings:
        if one.kind == NAN and rules.nan == "stop" and max((p.nans for p in pulses), default=0) >= NANS:
            return Order(STOP, one.evidence), tried
        if one.kind == HANG and rules.hang == "restart":
            step = max((p.step for p in pulses if p.step is not None), default=None)
            new = step is not None and (tried.step is None or step > tried.step)
            count = 1 if new else tried.restarts + 1
            highest = step if new else tried.step
            if count > RESTARTS:
                last = "" if highest is None else f" after step {highest}"
                why = (
                    f"it hung {count} times{last}, without a new step between: its program is at fault. {one.evidence}"
                )
                return Order(STOP, why), tried
            order = Order(RESTART, f"it hangs: {one.evidence}")
            return order, dataclasses.replace(_learnt(pulses, tried), restarts=count, step=highest)
    return None, tried


def _learnt(pulses: Sequence[Pulse], tried: Tried) -> Tried:
    """Add the times that this attempt has learnt."""
    known = [one for one in pulses if one.steps]
    return dataclasses.replace(
        tried,
        usual=max(tried.usual, *(one.usual for one in known), 0.0),
        longest=max(tried.longest, *(one.longest for one in known), 0.0),
        first=max(tried.first, *(one.first for one in known), 0.0),
    )


# --- records ----------------------------------------------------------------------------------------------------------------------------

_MOST_TASKS = 20_000


def write_pulse(job: Path, stage: str, run: str, value: Pulse) -> None:
    """Raises OSError: the file system is full, or gone."""
    files.write_json(_path(job, stage, f"{run}.{value.task}.pulse.json"), dataclasses.asdict(value))


def pulses(job: Path, stage: str, run: str) -> list[Pulse]:
    """Read the pulses of a run, by their tasks."""
    pattern = re.compile(rf"{re.escape(f'{stage}.{run}.')}\d{{1,9}}\.pulse\.json")
    try:
        names = sorted(one.name for one in (job / "state").iterdir() if pattern.fullmatch(one.name))[:_MOST_TASKS]
    except OSError:
        return []
    found = [records.read(Pulse, job / "state" / name) for name in names]
    return sorted((one for one in found if one is not None), key=lambda one: one.task)


def write_order(job: Path, stage: str, run: str, value: Order) -> None:
    files.write_json(_path(job, stage, f"{run}.order.json"), dataclasses.asdict(value))


def order(job: Path, stage: str, run: str) -> Optional[Order]:
    found = records.read(Order, _path(job, stage, f"{run}.order.json"))
    return found if found and found.do in (RESTART, SAVE, STOP, MOVE) else None


def write_found(job: Path, stage: str, value: Sequence[Finding], stepped: float = 0.0) -> None:
    files.write_json(_path(job, stage, "found.json"), dataclasses.asdict(Found(tuple(value[:20]), stepped)))


def found(job: Path, stage: str) -> tuple[Finding, ...]:
    """Read the present problems of a training."""
    told = records.read(Found, _path(job, stage, "found.json"))
    every = [records.safe(one) for one in told.findings[:20]] if told else []
    return tuple(one for one in every if one is not None)


def stepped(job: Path, stage: str) -> float:
    """Return the time of a training's last step, in seconds since 1970; 0: there was none, or it is not known."""
    told = records.read(Found, _path(job, stage, "found.json"))
    return told.stepped if told else 0.0


def tried(job: Path) -> Tried:
    return records.read(Tried, job / "state" / "health.json") or Tried()


def write_tried(job: Path, value: Tried) -> None:
    files.write_json(job / "state" / "health.json", dataclasses.asdict(value))


def _path(job: Path, stage: str, rest: str) -> Path:
    return job / "state" / f"{stage}.{rest}"
