"""The status of jobs and of nodes: the runner's, and what only its client knows. And the reason of a job's end: the one sentence of `trn status`, `list`,
`logs`, `why` and the report, from what its runner has recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from trainium_cdk.runner.readers import Said
from trainium_cdk.runner.records import MEMORY_FULL
from trainium_cdk.runner.status import (
    ACTIVE,
    ENDED_BADLY,
    OLD,
    Foreign,
    JobStatus,
    Node,
    Stage,
    checkpoints_in,
    last_begun,
    last_step,
    of_members,
    parse_int,
    shown_values,
)

if TYPE_CHECKING:
    from trainium_cdk.runner.readers.ending import ErrorPattern

__all__ = [
    "ACTIVE", "ENDED_BADLY", "OLD", "Foreign", "JobStatus", "LogChunk", "Node", "Stage", "Submitted", "checkpoints_in", "last_begun", "last_step", "of_members", "parse_int", "shown_values",
]  # fmt: skip
_KILLED = 137


@dataclass(frozen=True)
class Submitted:
    """A submitted job.

    Attributes:
        existing: whether it already existed, from an earlier submission with the same token.
        stages: the scheduler's ids by stage. `prepare` is missing if everything was already fetched.
        resubmitted: stages that the scheduler had lost, and that were now submitted again.
        sent: files and bytes (packed) of the workdir that the bucket did not have; None without a workdir.
    """

    id: str
    existing: bool
    stages: dict[str, str]
    directory: str
    resubmitted: tuple[str, ...] = ()
    sent: tuple[int, int] | None = None


class LogChunk(NamedTuple):
    """A piece of a log: `data` begins at byte `offset` of the stage's log, and the next piece begins at `next_offset`.

    A log that ends before the requested offset is one piece without data, at the log's end. `member`: the index of an array's member.
    """

    stage: str
    offset: int
    data: bytes
    member: str = ""

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


def with_reasons(job: JobStatus) -> JobStatus:
    """A job whose stages and members say why they ended."""
    if job.state not in ENDED_BADLY:
        return job
    stages = tuple(with_reason(one, job.nodes) for one in job.stages)
    return replace(job, stages=stages, members=tuple(with_reason(one, job.nodes) for one in job.members))


def with_reason(stage: Stage, nodes: int) -> Stage:
    """A stage with the sentence `why`, if it has ended badly: which node and process failed first, its exception or signal, or else its last
    line, and what is known of that; where no program has failed, what the scheduler knows.

    Args:
        nodes: of the job.
    """
    if stage.state not in ENDED_BADLY:
        return stage
    from trainium_cdk.runner.readers.ending import known_error, why_it_ended  # not for a job that has not failed

    failed, why = stage.failure, ""
    if failed and failed.last == MEMORY_FULL and failed.said.raised:  # its pod is described better than by a signal
        return replace(stage, why=f"{stage.reason}. The last exception of its log: {failed.said.raised[0]}")
    if failed and stage.state in ("FAILED", "OUT_OF_MEMORY"):
        if failed.said != Said():
            code = None if failed.stopped else failed.code
            why = why_it_ended(failed.said, code, nodes, error_patterns(), failed.kills)
        why = why or failed.last
    elif stage.state == "OUT_OF_MEMORY" and " " not in stage.reason:
        why = why_it_ended(Said(), _KILLED, nodes, (), kills=1)
    elif failed:  # it was stopped: at its time limit, or with a node
        found = [f"The first exception of its log: {failed.said.raised[0]}"] if failed.said.raised else []
        known = known_error(failed.said, nodes, error_patterns())
        why = ". ".join(filter(None, [stage.reason, *found, known]))
    where = _where(stage, nodes) if why and failed else ""
    return replace(stage, why=f"{where}{why or stage.reason}")


def _where(stage: Stage, nodes: int) -> str:
    failed = stage.failure
    if failed is None:
        return ""
    node = f"node {failed.node}" if nodes > 1 and failed.node >= 0 and stage.name != "prepare" else ""
    rank = "" if failed.rank is None else f"rank {failed.rank}"
    where = ", ".join(filter(None, [node, rank]))
    return f"{where}: " if where else ""


@cache
def error_patterns() -> tuple[ErrorPattern, ...]:
    """The catalogue's known errors of a job's log."""
    from trainium_cdk.description.catalog.known_errors import job_errors
    from trainium_cdk.runner.readers.ending import ErrorPattern

    return tuple(ErrorPattern(**{name: getattr(one, name) for name in ErrorPattern._fields}) for one in job_errors())
