"""The status of jobs and nodes, in the same terms for every engine: what the runner answers, and what the client shows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Optional

from .readers import Finding
from .records import Failure, TimedFinding, span
from .spec import Bound, Count, Time

OLD = 60.0
"""Seconds from which on it is shown how long ago the last step was."""


def last_step(seconds: float) -> str:
    """Describe the time since the last step; empty within a minute.

    >>> last_step(59), last_step(70), last_step(700)
    ('', 'last step 70 s ago', 'last step 11 min ago')
    """
    return f"last step {span(seconds)} ago" if seconds >= OLD else ""


ACTIVE = frozenset({"PENDING", "RUNNING"})
ENDED_BADLY = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "TIMEOUT"})


@dataclass(frozen=True)
class Stage:
    """One stage of a job: prepare, precompile or train.

    Attributes:
        number: the scheduler's id of it.
        state: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, LOST (the scheduler
            does not know it, and it has not completed) or UNKNOWN.
        reason: why it is in that state; may be empty.
        nodes: the nodes it has or had.
        exit_code: of its script; None while unknown. started, ended: seconds since 1970; None while unknown.
        failed_node: the job's node (0, 1, ...) that failed first; None if none did, or that is not known.
        values: of a sweep's member, by their names.
        failure: what its runner has recorded of the first failure; None if there was none, or that is not known.
        why: why it ended badly, in one sentence of the client's; empty if it did not.
        findings: what is wrong with it while it runs.
        stepped: when its training did its last step, in seconds since 1970, while it runs; None if that is not known.
    """

    name: str
    number: str
    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: Optional[int] = None
    started: Optional[Time] = None
    ended: Optional[Time] = None
    failed_node: Optional[int] = None
    values: Mapping[str, str] = field(default_factory=dict)
    failure: Optional[Failure] = None
    why: str = ""
    findings: tuple[TimedFinding, ...] = ()
    stepped: Optional[float] = field(default=None, compare=False)

    def last_step(self, now: float) -> str:
        """Describe the time since the stage's last step, if it runs. See `last_step`."""
        return last_step(now - self.stepped) if self.stepped and self.state == "RUNNING" else ""

    def with_findings(self, findings: tuple[Finding, ...]) -> "Stage":
        """Add the problems of a stage that runs. A hang is its reason."""
        if self.state != "RUNNING" or not findings:
            return self
        hangs = next((one.text for one in findings if one.kind == "hang"), "")
        return replace(self, findings=findings, reason="; ".join(filter(None, (hangs, self.reason))))


@dataclass(frozen=True)
class JobStatus:
    """A job and its stages, in their order."""

    id: str
    kind: str
    queue: str
    instance_type: str
    nodes: Count
    global_batch_size: Optional[int]
    stages: Annotated[tuple[Stage, ...], Bound("list of stages", bool)]
    directory: str = ""
    user: str = ""
    """Who submitted it, by the user name of the machine that did; empty if that is not known."""
    submitted: Optional[Time] = None
    """Seconds since 1970; None if that is not known."""
    members: tuple[Stage, ...] = ()
    """An array's members: each is a stage whose name is its index. `train` stands for all of them."""
    progress: str = ""
    """How far its training is: `step 12 of 100: loss 2.31`; empty if that is not known, for an array, and in a list of jobs."""
    kept: str = ""
    """Its newest checkpoint in S3, and what could not be copied, as `progress` is known; empty if none is copied."""
    checkpoints: str = ""
    """Directory of its checkpoints; each member of an array has it in its own directory. Empty if it writes none, or that is not known."""

    def member(self, index: str) -> "Optional[JobStatus]":
        """Return a member of an array, as its own job; None if it has no such member."""
        found = next((member for member in self.members if member.name == index), None)
        if found is None:
            return None
        stages = (*self.stages[:-1], replace(found, name=self.stages[-1].name))
        own = f"{self.directory}/{index}"
        checkpoints = self.checkpoints.replace(self.directory, own, 1)
        return replace(self, id=f"{self.id}/{index}", directory=own, stages=stages, members=(), checkpoints=checkpoints)

    @property
    def current(self) -> Stage:
        """The stage that defines the job's state: a lost one, else the first that is not completed, else the last."""
        lost = next((s for s in self.stages if s.state == "LOST"), None)
        return lost or next((s for s in self.stages if s.state != "COMPLETED"), self.stages[-1])

    @property
    def state(self) -> str:
        return self.current.state

    @property
    def why(self) -> str:
        """Return why the job ended badly, in one sentence; of an array, why its first such member did. Empty if it did not."""
        member = next((one for one in self.members if one.state == self.state and one.why), None)
        return f"member {member.name}: {member.why}" if member else self.current.why

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the problems of the training while it runs."""
        return self.stages[-1].findings

    @property
    def done(self) -> bool:
        """True if the job has ended. If a stage is lost, those before it may still run."""
        return self.state == "LOST" or all(s.state not in ACTIVE for s in self.stages)

    @property
    def values(self) -> Mapping[str, str]:
        """Return the values of a sweep's member, by their names."""
        return self.stages[-1].values

    def active(self, stage: str) -> bool:
        """Return whether a stage waits or runs."""
        return any(s.name == stage and s.state in ACTIVE for s in self.stages)

    @property
    def ok(self) -> bool:
        return all(s.state == "COMPLETED" for s in (*self.stages, *self.members))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`."""
        return {
            **asdict(self),
            "stages": [asdict(s) for s in self.stages],
            "state": self.state,
            "why": self.why,
            "done": self.done,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Foreign:
    """A job that another client than `trn` runs or queues on a cluster.

    Attributes:
        kind: as kubectl names it, such as `job.batch`; on Slurm `sbatch`.
        state: PENDING or RUNNING.
        queue: empty if it is in none.
        submitted: seconds since 1970; None if that is not known.
        user: of Slurm; empty if that is not known.
        started: seconds since 1970; None if it has not, or that is not known.
        nodes: that it has or asks for; None if that is not known.
        reason: why it waits; empty if it does not, or that is not known.
    """

    name: str
    kind: str
    state: str
    queue: str
    submitted: Optional[Time]
    user: str = ""
    started: Optional[Time] = None
    nodes: Optional[int] = None
    reason: str = ""


@dataclass(frozen=True)
class Node:
    """One node of a cluster.

    Attributes:
        queue: Slurm's partition; on Kubernetes the node group's queue, empty for a system node.
        state: the scheduler's own, small: idle, allocated, down+drain, ...; ready, notready, ready+cordoned, ready+leaving.
        job: id of the job that runs there, with its stage; empty without one.
        reason: why it is down or drained, or no pod may start there.
        address: of the instance in the VPC; the node's name where it has none.
        booted: seconds since 1970; None if that is not known.
        on: whether there is an instance, which costs money.
        instance: id of the instance; empty where the scheduler does not know it.
    """

    name: Annotated[str, Bound("name of a node", re.compile(r"[A-Za-z0-9][\w.-]{0,252}").fullmatch)]
    queue: str
    instance_type: str
    state: str
    job: str = ""
    reason: str = ""
    address: str = ""
    booted: Optional[Time] = None
    on: bool = True
    instance: str = ""


_ORDER = ("RUNNING", "PENDING", "COMPLETED", "CANCELLED")
"""States in counts first; then members that failed."""
_SHORT = 1200
"""Bytes of a failure in a list."""
_SHOWN = 5
"""Members that a reason names."""


def of_members(number: str, members: Sequence[Stage]) -> Stage:
    """The stage that stands for all members of an array, with their states in counts. Its state, once all have ended: a failure; else COMPLETED if
    some have; else CANCELLED."""
    found: dict[str, list[Stage]] = {state: [] for state in _ORDER}
    for member in members:
        found.setdefault(member.state, []).append(member)
    found = {state: some for state, some in found.items() if some}
    active = [state for state in ("RUNNING", "PENDING") if state in found]
    failed = [state for state in found if state not in _ORDER]
    state = (active or failed or [state for state in ("COMPLETED", "CANCELLED") if state in found])[0]
    texts = [_count(one, some) for one, some in found.items()]
    why = next((m.reason for m in members if m.state == state and m.reason), "")
    starts, ends = [m.started for m in members if m.started], [m.ended for m in members if m.ended]
    return Stage(
        "train",
        number,
        state,
        ", ".join(texts) + (f"; {why}" if why else ""),
        started=min(starts, default=None),
        ended=None if active else max(ends, default=None),
    )


def _count(state: str, members: Sequence[Stage]) -> str:
    """Describe the members in a state, as `2 failed (3: lr=1e-4, 7: lr=3e-4)`: the number, and those that did not end well."""
    text = f"{len(members)} {state.lower().replace('_', ' ')}"
    if state in _ORDER:
        return text
    some = [f"{m.name}: {shown_values(m.values)}" if m.values else m.name for m in members[:_SHOWN]]
    return f"{text} ({', '.join(some)}{', ...' if len(members) > _SHOWN else ''})"


def shown_values(values: Mapping[str, str]) -> str:
    """The values of a member in one line."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def shortened(status: JobStatus, whole: Sequence[str] = ()) -> JobStatus:
    """The same with short failures, for a list of jobs, and for the members of an array.

    Args:
        whole: names of the stages and members whose reasons are not shortened.
    """

    def short(one: Stage) -> Stage:
        return one if one.failure is None or one.name in whole else replace(one, failure=one.failure.cut(_SHORT))

    return replace(status, stages=tuple(map(short, status.stages)), members=tuple(map(short, status.members)))


def last_begun(status: JobStatus) -> str:
    """The last stage that has a log, else the last of all."""
    begun = [s.name for s in status.stages if s.state != "PENDING" and not (s.state == "CANCELLED" and not s.nodes)]
    return (begun or [s.name for s in status.stages])[-1]


def parse_int(value: object) -> Optional[int]:
    """A number as a program prints it, or None."""
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value) else None


def checkpoints_in(directory: str, folder: object) -> str:
    """The directory of a job's checkpoints: its record, which lies where jobs can write, names a folder in its own directory."""
    return f"{directory}/{folder}" if isinstance(folder, str) and re.fullmatch(r"[a-z]+(/[a-z]+)*", folder) else ""
