"""A job's stages in Slurm: each starts when the one before has completed, and is cancelled by Slurm if that is no longer possible."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from .. import arrays, files, layout, records, slurm
from ..errors import Later, Refused
from ..records import State, Submitted
from ..slurm import Row
from ..spec import Job
from . import sbatch

ACTIVE, COMPLETED, OVER, LOST = "active", "completed", "over", "lost"
"""OVER: it has recorded that it failed or was stopped, or Slurm reports that it was stopped. LOST: it has recorded no end, and Slurm does not know it,
reports that it failed, or that it cannot start after the stage before it."""
_FAILED = ("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY")
_STOPPED = ("CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT")


def submit(job: Job, folder: Path, runner: str, stages: Sequence[str], after: str) -> dict[str, str]:
    """Submit stages. Returns their numbers.

    Args:
        runner: path of this program, which the stages start.
        after: what the first one depends on, as sbatch has it.

    Raises:
        Refused: Slurm refuses one. Those before it are submitted.
        Later: Slurm does not answer.
    """
    numbers: dict[str, str] = {}
    previous = ""
    for stage in stages:
        chained = not previous and len(stages) > 1
        previous = numbers[stage] = _submit(job, folder, runner, stage, previous, chained=chained, after=after)
    return numbers


def resume(job: Job, folder: Path, made: Submitted) -> tuple[Mapping[str, str], list[str], Row | str]:
    """Submit again the stages that Slurm has lost, and those after them.

    Returns:
        The numbers, the stages that were submitted again, and the first stage that is not over: Slurm's row, or its new number.

    Raises:
        Later: Slurm does not answer, or not accept it again.
    """
    numbers, again = dict(made.numbers), list[str]()
    first: Row | str = ""
    previous = compiled = ""
    rows = slurm.rows(numbers=numbers.values(), ended=True)
    for stage in (one for one in slurm.STAGES if one in numbers):
        how = LOST if again else stand(folder, job.id, stage, numbers[stage], rows, job.array)
        if how == OVER or records.is_cancelled(folder):
            break
        if how == ACTIVE:
            previous = numbers[stage]
            first = first or next(row for row in rows if row.of(job.id, stage, previous))
        elif how == COMPLETED and stage == "precompile":
            state = recorded(folder, stage, numbers[stage])
            compiled = state.nodes if state else ""
        elif how == LOST:
            chained = not previous and stage != [one for one in slurm.STAGES if one in numbers][-1]
            numbers[stage] = _again(job, folder, made.runner, stage, previous, compiled, chained=chained)
            again.append(stage)
            previous = numbers[stage]
            first = first or previous
    return numbers, again, first


def release(job: Job, first: Row | str, *, sure: bool) -> None:
    """Let the first stage begin, if it waits for its time.

    Args:
        first: as of `resume`.
        sure: it was submitted just now.

    Raises:
        Later: Slurm does not answer. It begins within some minutes.
    """
    if isinstance(first, Row):
        number = first.number
        if first.state != "PENDING" or (first.reason in ("Priority", "Resources") and not sure):
            return
        if first.stage != "prepare" and sbatch.begins_later(job):
            return
    else:
        number = first
        if sbatch.begins_later(job):
            return
    with contextlib.suppress(Refused, Later):
        slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
        return
    # released before, which its client did not hear: then it may run, or have ended
    with contextlib.suppress(Later):
        if any(row.state in ("RUNNING", "COMPLETING") for row in slurm.rows(numbers=[number])):
            return
    raise Later(f"{job.id} is not released yet: it begins within {sbatch.GRACE_SECONDS} s")


def _again(job: Job, folder: Path, runner: str, stage: str, previous: str, compiled: str, *, chained: bool) -> str:
    slurm.cancel(f"{job.id}:{stage}")
    (folder / "state" / f"{stage}.json").unlink(missing_ok=True)  # it may get the same number again
    layout.write_variables(folder, job)
    try:
        return _submit(job, folder, runner, stage, previous, chained=chained, nodes=compiled)
    except Refused as e:
        raise Later(f"Slurm has lost {stage} of {job.id}, and did not accept it again: {e}") from None


def _submit(
    job: Job,
    folder: Path,
    runner: str,
    stage: str,
    previous: str,
    *,
    chained: bool,
    after: str = "",
    nodes: str = "",
) -> str:
    """Submit one stage, after the one of this number. Returns its number."""
    what = next(one for one in job.stages if one.name == stage)
    if not (job.array and stage == "train"):
        (folder / "logs" / f"{stage}.log").touch()  # NFS caches for half a minute that a file does not exist
    after = f"afterok:{previous}" if previous else after
    words = sbatch.options(job, what, folder, chained=chained, after=after, nodes=nodes)
    try:
        printed = slurm.run("sbatch", "--parsable", *words, text=sbatch.script(runner, folder, stage))
    except Refused as e:
        # the controller crashed, forgot the stage before this one, and gave its number to this one
        if previous and "Job dependency problem" in str(e):
            raise Later(str(e)) from None
        raise
    number = printed.strip().partition(";")[0]
    if not number.isdigit():
        raise Later(f"sbatch printed {number[:200]!r}, and no number")
    return number


# --- how a stage stands ----------------------------------------------------------------------------------------------------------------


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
    places = [folder / str(index) for index in arrays.indices(array)] if array and stage == "train" else [folder]

    def now() -> str:
        states = [recorded(place, stage, number) for place in places]
        return judge_array(own, states) if array and stage == "train" else judge(own[-1] if own else None, states[0])

    if (how := now()) == LOST:  # it may have ended a moment ago
        files.refresh(folder, *(place / "state" for place in places))
        how = now()
    return how


def recorded(folder: Path, stage: str, number: str) -> State | None:
    """What a stage has recorded, if that is not of another Slurm job."""
    state = records.state(folder, stage)
    return state if state and state.number == number else None
