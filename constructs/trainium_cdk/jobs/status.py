"""How jobs are, in the same terms for every engine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

ACTIVE = frozenset({"PENDING", "RUNNING"})


@dataclass(frozen=True)
class Stage:
    """One stage of a job: prepare, precompile or train.

    Attributes:
        number: the scheduler's own id of it.
        state: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, LOST (the scheduler
            does not know it, and it has not run to its end) or UNKNOWN.
        reason: why it is in that state, in words; empty where there is nothing to say.
        nodes: the nodes it has or had.
        exit_code: of its script; None while unknown.
        started, ended: seconds since 1970; None while unknown.
    """

    name: str
    number: str
    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int | None = None
    started: int | None = None
    ended: int | None = None


@dataclass(frozen=True)
class Expected:
    """A published throughput of the very same job, to compare a run with."""

    sequences_per_second: float
    source: str

    @classmethod
    def of(cls, said: Any) -> Expected | None:
        """As a job's record has it; None where that is no such thing."""
        try:
            return cls(float(said["sequences_per_second"]), str(said["source"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        return f"{self.sequences_per_second:,.0f} sequences/s ({self.source})"


@dataclass(frozen=True)
class JobStatus:
    """A job and its stages, in their order."""

    id: str
    kind: str
    queue: str
    instance_type: str
    nodes: int
    global_batch_size: int | None
    stages: tuple[Stage, ...]
    directory: str = ""
    expected: Expected | None = None

    @property
    def current(self) -> Stage:
        """The stage that tells how the job is: one that is lost, else the first that is not completed, else the last."""
        lost = next((s for s in self.stages if s.state == "LOST"), None)
        return lost or next((s for s in self.stages if s.state != "COMPLETED"), self.stages[-1])

    @property
    def state(self) -> str:
        return self.current.state

    @property
    def done(self) -> bool:
        """Whether nothing more will come of it: where a stage is lost, those before it may still run."""
        return self.state == "LOST" or all(s.state not in ACTIVE for s in self.stages)

    @property
    def ok(self) -> bool:
        return all(s.state == "COMPLETED" for s in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {
            **asdict(self),
            "stages": [asdict(s) for s in self.stages],
            "state": self.state,
            "done": self.done,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Submitted:
    """A job that is on the cluster.

    Attributes:
        existing: it was there already, from an earlier submission with the same token.
        stages: the scheduler's ids by stage. `prepare` is missing where all was fetched before.
        resubmitted: stages that the scheduler had lost, and that were submitted again now.
    """

    id: str
    existing: bool
    stages: dict[str, str]
    directory: str
    resubmitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogChunk:
    """A piece of a log: `data` begins at byte `offset` of the stage's log, and `next_offset` is where to go on."""

    stage: str
    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


def whole(said: object) -> int | None:
    """A number as a program prints it, or None."""
    if isinstance(said, int):
        return int(said)
    return int(said) if isinstance(said, str) and re.fullmatch(r"[0-9]{1,18}", said) else None
