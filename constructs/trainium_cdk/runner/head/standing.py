"""How a stage stands, as a submission sees it: may the next one wait for it, and has Slurm lost it, so that it may be submitted again?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from .. import arrays, records
from ..records import State
from ..slurm import Row

ACTIVE, COMPLETED, OVER, LOST = "active", "completed", "over", "lost"
"""OVER: it has recorded that it failed or was stopped, or Slurm reports that it was stopped. LOST: it has recorded no end, and Slurm does not know it,
reports that it failed, or that it cannot start after the stage before it."""
_FAILED = ("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY")
_STOPPED = ("CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT")


def judge(row: Row | None, state: State | None) -> str:
    """How a stage stands, by Slurm's row of it and what it has recorded; either may be missing."""
    ended = state is not None and state.state == records.ENDED
    if row is None or row.state in _FAILED:
        how = OVER if state is not None and ended and state.why != records.LOST else LOST
    elif row.state == "COMPLETED":
        how = COMPLETED
    elif row.state in _STOPPED:  # if the stage before it is not over, its controller had crashed
        how = LOST if row.reason == "DependencyNeverSatisfied" else OVER
    else:
        how = ACTIVE
    if how == OVER and state is not None and ended and state.code == 0:
        return COMPLETED  # the controller had crashed, forgotten that, and started it again
    return how


def judge_array(rows: Sequence[Row], states: Collection[State | None]) -> str:
    """How an array stands, of whose members Slurm has these rows, and which have recorded these states. One of which a member has begun is not
    submitted again."""
    if any(judge(row, None) == ACTIVE for row in rows):
        return ACTIVE
    if not any(states):
        return LOST
    done = all(one is not None and one.state == records.ENDED and one.code == 0 for one in states)
    return COMPLETED if done else OVER


def stand(folder: Path, id: str, stage: str, number: str, rows: Sequence[Row], array: str = "") -> str:
    """How a stage of a job stands.

    Args:
        rows: Slurm's, of any jobs, also of those that have ended.
        array: the job's.
    """
    own = [row for row in rows if row.of(id, stage, number)]
    if array and stage == "train":
        return judge_array(own, [recorded(folder / str(index), stage, number) for index in arrays.indices(array)])
    return judge(own[-1] if own else None, recorded(folder, stage, number))


def recorded(folder: Path, stage: str, number: str) -> State | None:
    """What a stage has recorded, if that is not of another Slurm job."""
    state = records.state(folder, stage)
    return state if state and state.number == number else None
