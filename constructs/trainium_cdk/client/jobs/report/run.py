"""Jobs as their status and their logs tell them: read once, or followed, when each round reads what is new; and the cost of their nodes so far, at
the catalogue's list prices. Nothing is guessed: the report says if a price is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.client.jobs.backend import Backend
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.metrics import job_log
from trainium_cdk.client.jobs.report.curve import Curves
from trainium_cdk.client.jobs.status import ACTIVE, OLD, JobStatus, Stage, parse_int
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.lookup import CALCULATOR
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.errors import JobError, TrnError, UnknownJob
from trainium_cdk.runner.readers import CacheStatus, Evaluation, Finding, Record, Start, Step
from trainium_cdk.runner.readers.log import JobLog
from trainium_cdk.text import duration

_SEQUENCES = ("sequences", "samples", "examples")
AT_ONCE = 8
"""Logs that are read at the same time."""
PAUSE = 5.0
"""Least seconds between two rounds."""
_LATE = 30.0
"""Seconds without an answer after which the text says so."""
_USUAL = 3
"""Times between two lines with a step, after which the time left is not known: the training may stand still."""
NOT_COUNTED = (
    "not in it: storage, network, the head node or control plane, the stage prepare, and nodes while they start or idle"
)


@dataclass
class Run:
    """A job, and what its logs have said so far.

    Attributes:
        price: of one node.
        settings: what it was submitted with, other than the defaults; empty if unknown.
        model: which one it trains, as its kind names it; empty if the kind has no such option.
        problem: why its logs could not be read; empty if they could.
        now: seconds since 1970, for stages that still run.
    """

    status: JobStatus
    price: Price
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    problem: str = ""
    now: float = field(default_factory=time.time)
    curves: Curves = field(default_factory=Curves)
    planned_steps: int | None = None
    total_steps: int | None = None
    log: JobLog = field(default_factory=job_log, repr=False)
    _looks: list[tuple[float, int]] = field(default_factory=list, repr=False)
    _apart: int = field(default=1, repr=False)

    def feed(self, stage: str, data: bytes) -> None:
        """Take a piece of a stage's log."""
        self._take(self.log.feed(stage, data))

    def close(self) -> None:
        """Take the last line, which may have no end."""
        self._take(self.log.close())

    def _take(self, records: Sequence[tuple[str, Record]]) -> None:
        """Take the records of the training. Steps of other stages than `train` are trials."""
        for stage, record in records:
            if isinstance(record, (Step, Evaluation)) and stage == "train":
                before, at = self.curves.step, self.curves.add(record)
                if isinstance(record, Step):
                    self._apart = at - before if before is not None and at > before else self._apart
                    self.total_steps = record.total_steps or self.total_steps

    def looked(self, now: float) -> None:
        """Record that the log was read up to this moment."""
        self.now = now
        if (step := self.step) is None:
            return
        if not self._looks or step < self._looks[-1][1]:  # it begins again
            self._looks = [(now, step)]
        elif step > self._looks[-1][1]:
            self._looks[1:] = [(now, step)]

    def began(self, stage: Stage) -> float | None:
        """Return the time at which a stage first began, in seconds since 1970. The schedulers tell it of the last attempt only, and for a while."""
        times = [s.time for s in self.starts.get(stage.name, ())] + ([stage.started] if stage.started else [])
        return min(times, default=None)

    def seconds(self, stage: Stage) -> float | None:
        """Return the duration of a stage from its first attempt on, up to now while it runs; None before it begins, or if it is not known."""
        began = self.began(stage)
        if began is None or stage.state == "PENDING":
            return None
        end = self.now if stage.state in ACTIVE else stage.ended
        return None if end is None else max(0.0, end - began)

    @property
    def times(self) -> list[tuple[str, float, float]]:
        """Return the stages whose times are known: name, begin in seconds since 1970, duration in seconds."""
        stages = [(s.name, self.began(s), self.seconds(s)) for s in self.status.stages]
        return [(name, began, took) for name, began, took in stages if began and took is not None]

    @property
    def took(self) -> float | None:
        """Seconds from the beginning of its first stage to the end of its last, or until now; None if that is not known."""
        return max(b + took for _, b, took in self.times) - min(b for _, b, _ in self.times) if self.times else None

    def stage(self, name: str) -> Stage | None:
        return next((s for s in self.status.stages if s.name == name), None)

    def tail(self, stage: str) -> list[str]:
        """The last lines of a stage's log."""
        return self.log.tail(stage)

    @property
    def starts(self) -> Mapping[str, Sequence[Start]]:
        """Return the attempts of each stage."""
        return self.log.starts

    @property
    def compiled(self) -> Mapping[str, int]:
        """See `JobLog`."""
        return self.log.compiled

    @property
    def errors(self) -> Sequence[int]:
        """Codes of graphs that failed to compile."""
        return self.log.errors

    @property
    def cache(self) -> CacheStatus | None:
        """The newest progress of a compilation."""
        return self.log.cache

    @property
    def findings(self) -> Sequence[Finding]:
        """Return the problems of the training now, or at its end."""
        return self.log.findings or self.status.findings

    @property
    def restarts(self) -> int:
        """Return the number of restarts of all stages."""
        found = 0
        for starts in self.starts.values():
            numbered = [s.attempt for s in starts if s.attempt is not None]
            found += max(numbered, default=0) if numbered else len(starts) - 1
        return found

    @property
    def node_hours(self) -> float | None:
        """Hours of one node that the stages on Trainium nodes took; None where their times are not known."""
        begun = [s for s in self.status.stages if s.name != "prepare" and s.state != "PENDING" and not _never(s)]
        took = [self.seconds(s) for s in begun]
        if None in took or self._again:
            return None
        total = until = 0.0
        # other nodes compile again between two attempts of the training
        for begin, length in sorted((self.began(s) or 0.0, t or 0.0) for s, t in zip(begun, took, strict=True)):
            total += max(0.0, begin + length - max(begin, until))
            until = max(until, begin + length)
        return self.status.nodes * total / 3600

    @property
    def cost(self) -> float | None:
        """USD so far; None if it is not known."""
        return self.price.of(self.node_hours)

    @property
    def no_cost(self) -> str:
        """Return why the cost is not known; empty if it is."""
        if self.cost is not None:
            return ""
        if self.price.hour is None:
            return self.price.note
        if self._again:
            return "a stage waits to begin again; the hours of its attempts so far are counted when it does"
        return "the scheduler has forgotten when its stages began or ended"

    @property
    def _again(self) -> bool:
        """True if a stage waits that has run before: the end of its last attempt is not known."""
        return any(s.state == "PENDING" and s.name in self.starts for s in self.status.stages)

    @property
    def throughput(self) -> float | None:
        """Mean sequences per second after the warm-up, or in the unit that the log has."""
        if (told := self.log.throughput) is not None:
            return told
        batch, seconds = self.status.global_batch_size, self.log.seconds
        return batch / seconds if batch and seconds else None

    @property
    def step(self) -> int | None:
        """Return the training's position: its newest step with a number in the log, or what its progress bar counts."""
        at = self.log.course.position
        steps = [one for one in (self.curves.step, at.step if at else None) if one is not None]
        return max(steps, default=None)

    @property
    def last_step(self) -> int | None:
        """The step at which it ends, where its kind and settings, or its log, tell it."""
        at = self.log.course.position
        last = self.planned_steps or self.total_steps or (at.total_steps if at else None)
        return None if last and (self.step or 0) > last else last

    @property
    def first_attempts_lost(self) -> bool:
        """True if the logs begin with a later attempt, as after a pod's restart. Times and cost then lack the earlier attempts."""
        return any(starts[0].attempt for starts in self.starts.values())

    @property
    def step_seconds(self) -> float | None:
        """Mean time of a step: as the log has it; as its steps came while it was watched; or of the training so far, with what it compiled."""
        if self.log.seconds is not None:
            return self.log.seconds
        batch, speed = self.status.global_batch_size, self.log.throughput
        if batch and speed and self.curves.units.get("throughput", "sequences/s").split("/")[0] in _SEQUENCES:
            return batch / speed
        if len(self._looks) > 1 and self._looks[1][1] > self._looks[0][1]:
            (began, first), (ended, last) = self._looks
            return (ended - began) / (last - first)
        train = self.stage("train")
        took = self.seconds(train) if train else None
        took = max(0.0, took - (self.age or 0.0)) if took else None
        return took / self.step if took and self.step and not self.restarts and not self.curves.counted else None

    @property
    def age(self) -> float | None:
        """Seconds since its last step, by the cluster, or at least since this machine saw it; None if it has ended, or that is not known."""
        train = self.stage("train")
        told = train.stepped if train else None
        seen = self._looks[-1][0] if self._looks and (len(self._looks) > 1 or not told) else None
        last = max(filter(None, (seen, told)), default=None)
        return None if last is None or self.status.done else max(0.0, self.now - last)

    @property
    def left(self) -> float | None:
        """Seconds that the training still takes; None if its step, its last step or the time of one is not known, or if its last step was longer
        ago than usual."""
        if self.status.done or self.step is None or self.last_step is None or self.step_seconds is None:
            return None
        if (self.age or 0.0) > max(OLD, _USUAL * self.step_seconds * self._apart):
            return None
        return (self.last_step - self.step) * self.step_seconds

    @property
    def expected_cost(self) -> float | None:
        """USD until it ends, without further restarts."""
        rest = None if self.left is None else self.price.of(self.left / 3600 * self.status.nodes)
        return None if rest is None or self.cost is None else self.cost + rest


def _never(stage: Stage) -> bool:
    return stage.state == "CANCELLED" and not stage.nodes and stage.started is None


def begun(status: JobStatus) -> list[str]:
    """The stages that may have a log."""
    return [s.name for s in status.stages if s.state != "PENDING" and not _never(s)]


def described(jobs: Backend, status: JobStatus, catalog: Catalog, settings: Mapping[str, Any] | None = None) -> Run:
    """A job without what its logs tell.

    Args:
        settings: of all members of an array. Default: they are asked for.
    """
    if settings is None:
        settings = {}
        with suppress(TrnError):  # the report of a job is worth reading without them
            settings = jobs.settings(status.id)
    run = Run(status, price(status, jobs.cluster, catalog, parse_int(settings.get("devices"))), settings)
    if run.settings and (kind := kinds().get(status.kind)):
        with suppress(
            TypeError, ValueError, LookupError, ArithmeticError, AttributeError
        ):  # the record lies where jobs can write
            job = kind.model_construct(None, **run.settings)
            run.model = str(getattr(job, "model", None) or "")
            run.planned_steps = parse_int(job.total_steps)
    return run


def collect_all(
    jobs: Backend,
    ids: Sequence[str],
    catalog: Catalog | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """Jobs with what their logs tell, read once, and of each array its members that have begun. A log that cannot be read is the run's
    `problem`.

    Args:
        say: called with a line about what is being read.

    Raises:
        UnknownJob: there is no such job.
        TransportError: the cluster cannot be reached.
        JobError: no member of an array has begun.
    """
    made, catalog = list[Run](), catalog or Catalog.load()
    for id in dict.fromkeys(ids):
        say(f"reading {id}")
        status, settings, logs = jobs.history(id)
        runs = (of_members if status.members else _alone)(jobs, status, catalog, settings)
        if not runs:
            raise JobError(f"no member of {id} has begun. Wait for one (trn status {id})")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made += pool.map(lambda run: _read(jobs, run, logs), runs)  # noqa: B023  called at once
    return made


def _alone(jobs: Backend, status: JobStatus, catalog: Catalog, settings: Mapping[str, Any]) -> list[Run]:
    return [described(jobs, status, catalog, settings)]


def of_members(
    jobs: Backend, status: JobStatus, catalog: Catalog, settings: Mapping[str, Any] | None = None
) -> list[Run]:
    """The members of an array that have begun, without what their logs tell. `settings`: see `described`."""
    shared = described(jobs, status, catalog, settings).settings
    found = [member for one in status.members if (member := status.member(one.name)) and "train" in begun(member)]
    return [described(jobs, member, catalog, shared) for member in found]


def _read(jobs: Backend, run: Run, logs: Mapping[str, bytes]) -> Run:
    """Read a job's logs. `logs`: whole ones that were read before, by stage."""
    for stage in begun(run.status):
        if stage == "prepare":
            continue
        try:
            known = logs.get(stage)
            pieces = [known] if known is not None else (one.data for one in jobs.logs(run.status.id, stage=stage))
            for data in pieces:
                run.feed(stage, data)
        except TrnError as e:
            run.problem = f"the log of {stage} cannot be read: {e}"
    run.close()
    run.looked(time.time())
    return run


@dataclass(frozen=True)
class Price:
    """The price of one node of a job.

    Attributes:
        hour: USD an hour; None if it is not known.
        note: what it is, or why it is not known.
    """

    hour: float | None
    note: str

    def of(self, node_hours: float | None) -> float | None:
        """USD for so many hours of one node."""
        return None if self.hour is None or node_hours is None else self.hour * node_hours


def price(status: JobStatus, cluster: Cluster, catalog: Catalog, devices: int | None = None) -> Price:
    """The price of one of a job's nodes, as its queue is paid for. `devices`: its part of a node; None: all."""
    kind = status.instance_type
    fleets = [f for f in cluster.fleets if (f.queue, f.instance_type) == (status.queue, kind)]
    capacity = fleets[0].capacity_type if fleets else "on-demand"
    if capacity == "capacity-block":
        return Price(None, "the capacity block was paid for when it was bought")
    hour = catalog.price(kind, cluster.region, devices)
    if hour is None:
        return Price(
            None,
            f"the catalogue has no price of {kind} in {cluster.region}; {CALCULATOR}; or add catalog.prices.{cluster.region}.{kind} to the environment file",
        )
    spot = "; spot nodes cost less" if capacity == "spot" else ""
    source = catalog.price_source(kind, cluster.region)
    dated = f", list price of {source.date}" if source else ""
    part = f"{devices} of the devices of a " if devices else ""
    return Price(hour, f"{part}{kind} in {cluster.region}: {catalog.describe_price(kind, cluster.region)}{dated}{spot}")


class Live:
    """Jobs as they were at the last round.

    Attributes:
        statuses: of the jobs. runs: they, and of an array its members that have begun, with what their logs tell.
        pause: seconds between two rounds.
        ended: whether all have ended, or one no longer exists; nothing changes any more.
    """

    def __init__(self, jobs: Backend, ids: Sequence[str], catalog: Catalog):
        self._jobs, self._ids, self._catalog = jobs, list(dict.fromkeys(ids)), catalog
        self._settings: dict[str, Mapping[str, Any]] = {}
        self._runs: dict[str, Run] = {}
        self._read: dict[tuple[str, str], int] = {}
        self._closed: set[tuple[str, str]] = set()
        self._answered, self._problem = time.time(), ""
        self.statuses: list[JobStatus] = []
        self.pause = max(PAUSE, jobs.interval)
        self.ended = False

    @property
    def runs(self) -> list[Run]:
        return list(self._runs.values())

    @property
    def problem(self) -> str:
        """Return why the figures may be old; empty if they are not."""
        return self._problem if self.ended else late(time.time() - self._answered, self._problem)

    def look(self) -> None:
        """Read all jobs once. If the cluster does not answer, that is `problem`, and the next round tries again."""
        try:
            self.statuses = [self._jobs.status(id, progress=True) for id in self._ids]
            found = [run for status in self.statuses for run in self._described(status)]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                self._runs = {run.status.id: run for run in pool.map(self._follow, found)}
            self._answered, self._problem = time.time(), ""
            self.ended = all(status.done for status in self.statuses)
        except UnknownJob as e:
            self._problem, self.ended = str(e), True
        except TrnError as e:
            self._problem = str(e)

    def _described(self, status: JobStatus) -> list[Run]:
        settings = self._settings.get(status.id)
        shared = described(self._jobs, status, self._catalog, settings)
        self._settings[status.id] = shared.settings
        return of_members(self._jobs, status, self._catalog, shared.settings) if status.members else [shared]

    def _follow(self, now: Run) -> Run:
        """A job with what is new in its log. Lines of several nodes without an order are all read again."""
        again = not self._jobs.ordered_logs and now.status.nodes > 1
        run = now if again else self._runs.get(now.status.id, now)
        run.status = now.status
        for stage in begun(run.status):
            key = run.status.id, stage
            if stage != "prepare" and (again or key not in self._closed):
                state = next(one.state for one in run.status.stages if one.name == stage)
                self._read[key] = self._feed(run, stage, 0 if again else self._read.get(key, 0))
                if state not in ACTIVE:
                    self._closed.add(key)
        run.looked(time.time())
        if run.status.done:
            run.close()
        return run

    def _feed(self, run: Run, stage: str, begin: int) -> int:
        """Read a log, starting at this byte; returns where it ends now."""
        chunks = list(self._jobs.logs(run.status.id, stage=stage, offset=begin))
        if chunks and chunks[0].offset < begin:  # it is another pod's, or was rotated
            begin, chunks = 0, list(self._jobs.logs(run.status.id, stage=stage))
        for chunk in chunks:
            run.feed(stage, chunk.data)
        return begin + sum(len(chunk.data) for chunk in chunks)


def late(seconds: float, problem: str) -> str:
    """Describe for how long the cluster has not answered; empty if it answers.

    Args:
        seconds: since its last answer.
        problem: why it does not answer; empty if that is not known, or it does.

    >>> late(5, ""), late(100, ""), late(100, "the head node does not answer")
    ('', 'no answer for 1 min 40 s, still trying', 'no answer for 1 min 40 s, still trying: the head node does not answer')
    """
    if not problem and seconds <= _LATE:
        return ""
    return f"no answer for {duration(seconds)}, still trying" + (f": {problem}" if problem else "")
