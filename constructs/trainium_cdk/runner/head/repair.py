"""Tell Slurm's controller again what it forgot in a crash: that a job may begin, that it was cancelled, or that it has ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from .. import blocks, layout, records, slurm
from ..errors import Later, Refused
from ..records import State
from ..slurm import Row
from ..spec import SpecError
from . import sbatch
from .stages import moment

NOTICED_SECONDS = 30
"""After which Slurm has noticed that a stage has ended, unless it forgot."""
_CANCELLED = ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED")


def remind(jobs: Path, rows: Iterable[Row], claims: Collection[tuple[str, str, str]]) -> bool:
    """Tell Slurm what it forgot. Returns whether that was anything: then its rows are of before.

    Args:
        jobs: the folder of all jobs.
        rows: Slurm's, of whatever jobs.
        claims: the stages that jobs have recorded: (id, stage, number). Members of arrays are left alone.
    """
    told = False
    for row in rows:
        if row.mine and row.id and not row.index and (row.id, row.stage, row.number) in claims:
            with contextlib.suppress(Refused, Later):
                told = _remind(jobs / row.id, row) or told
    return told


def _remind(folder: Path, row: Row) -> bool:
    if os.path.lexists(folder / "cancelled"):
        if row.state not in _CANCELLED:
            return False
        slurm.run("scancel", f"--name={row.name}", row.number)
    elif (row.state, row.reason) == ("PENDING", "launch failed requeued held"):  # by Slurm itself, for ever
        slurm.run("scontrol", "release", row.number)
    elif (row.state, row.reason) == ("PENDING", "BeginTime"):
        if _may_wait(folder, row):
            return False
        slurm.run("scontrol", "update", f"JobId={row.number}", "StartTime=now")
    elif row.state == "RUNNING" and is_over(records.state(folder, row.stage), row, time.time()):
        _end(folder, row)
    else:
        return False
    return True


def just_ended(row: Row) -> bool:
    """Whether Slurm ended its last run in the last two seconds, and submitted it anew. In the second of that end a slurmd refuses the job ("Job
    credential revoked"), and Slurm fails it. A start ahead of now would come up to a minute late, and each status would put it off."""
    again = moment(row.submitted)
    return again is not None and again > time.time() - 2


def _may_wait(folder: Path, row: Row) -> bool:
    """Whether it waits for its time rightly: its user has said so, Slurm starts it again after a node's failure, which it counts, or it waits for its
    next capacity block. One that has completed only reports that."""
    if just_ended(row):
        return True
    if blocks.left(folder).count and not blocks.waits(folder.parent, folder, row.queue):
        return False
    state = records.state(folder, row.stage)
    begun = state and state.number == row.number and not (state.state == records.ENDED and state.code == 0)
    if begun and " Restarts=0 " not in f" {slurm.run('scontrol', '-o', 'show', 'job', row.number)} ":
        return True
    try:
        job = layout.read_job(folder)
    except SpecError:
        return False
    return row.stage != "prepare" and sbatch.begins_later(job)


def is_over(state: State | None, row: Row, now: float) -> bool:
    """Whether a stage has ended, and so long ago that Slurm would have noticed; one that was requeued has begun later."""
    if state is None or state.state != records.ENDED or state.number != row.number:
        return False
    began = moment(row.start)
    return began is not None and began <= state.at < now - NOTICED_SECONDS


def _end(folder: Path, row: Row) -> None:
    """It would run for ever, if its node's last message came after the crash. Started again, as Slurm does with one that it misses, a stage that
    has completed only reports that; one that must not run again is ended."""
    state = records.state(folder, row.stage)
    if state is not None and state.code == 0:
        with contextlib.suppress(Refused):
            slurm.run("scontrol", "update", f"JobId={row.number}", "Requeue=1")
    if state is None or state.why != records.TIMEOUT:
        with contextlib.suppress(Refused):
            slurm.run("scontrol", "requeue", row.number)
            return
    slurm.run("scancel", "--state=RUNNING", f"--name={row.name}", row.number)
