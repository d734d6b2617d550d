"""The standing of a Slurm job, by its row and the records of its stages. It decides what the same submission does once more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from .. import arrays, files, records, slurm
from ..records import State
from ..slurm import Row

ACTIVE, COMPLETED, OVER, LOST = "active", "completed", "over", "lost"
"""OVER: it has recorded that it failed or was stopped, or Slurm reports that it was stopped. LOST: it has recorded no end, and Slurm does not know it,
reports that it failed, or that it cannot start after the one before it."""
_FAILED = ("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY")
_STOPPED = ("CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT")


def judge(row: Row | None, state: State | None) -> str:
    """Return the standing of a Slurm job, by Slurm's row and its own record; either may be missing."""
    ended = state is not None and state.state == records.ENDED
    if row is None or row.state in _FAILED:
        how = OVER if state is not None and ended and state.why != records.LOST else LOST
    elif row.state == "COMPLETED":
        how = COMPLETED
    elif row.state in _STOPPED:  # if the one before it is not over, its controller had crashed
        how = LOST if row.reason == "DependencyNeverSatisfied" else OVER
    else:
        how = ACTIVE
    if how == OVER and state is not None and state.completed:
        return COMPLETED  # the controller had crashed, forgotten that, and started it again
    return how


def judge_array(rows: Sequence[Row], states: Collection[State | None]) -> str:
    """Return the standing of an array, by Slurm's rows and the recorded states of its members. An array is not submitted again once a member has
    begun."""
    if any(judge(row, None) == ACTIVE for row in rows):
        return ACTIVE
    if not any(states):
        return LOST
    return COMPLETED if all(one is not None and one.completed for one in states) else OVER


def stand(folder: Path, id: str, numbers: Mapping[str, str], stage: str, rows: Sequence[Row], array: str = "") -> str:
    """Return the standing of the Slurm job that carries out a stage.

    Args:
        numbers: of each stage of the job.
        rows: Slurm's, of any jobs, also of those that have ended.
        array: the job's.
    """
    stages = slurm.stages_with(numbers, stage)
    own = [row for row in rows if row.of(id, stages[-1], numbers[stage])]
    places = [folder / str(index) for index in arrays.indices(array)] if array and stage == "train" else [folder]

    def now() -> str:
        states = [current(place, numbers, stage)[1] for place in places]
        return judge_array(own, states) if array and stage == "train" else judge(own[-1] if own else None, states[0])

    if (how := now()) == LOST:  # it may have ended a moment ago
        files.refresh(folder, *(place / "state" for place in places))
        how = now()
    return how


def current(folder: Path, numbers: Mapping[str, str], stage: str) -> tuple[str, State | None]:
    """Return the current stage of a Slurm job, and its record: the first stage that has not recorded that it completed, else the last one. Slurm's
    row tells of it, and of no other."""
    *before, last = slurm.stages_with(numbers, stage)
    for name in before:
        state = recorded(folder, name, numbers[stage])
        if state is None or not state.completed:
            return name, state
    return last, recorded(folder, last, numbers[stage])


def recorded(folder: Path, stage: str, number: str) -> State | None:
    """Return the recorded state of a stage; None if it is missing, or another Slurm job's."""
    state = records.state(folder, stage)
    return state if state and state.number == number else None
