"""The status of jobs and of nodes: the runner's, and what only its client knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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

__all__ = [
    "ACTIVE", "ENDED_BADLY", "OLD", "Foreign", "JobStatus", "LogChunk", "Node", "Stage", "Submitted", "checkpoints_in", "last_begun", "last_step", "of_members", "parse_int", "shown_values",
]  # fmt: skip


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
