"""Start jobs that Slurm has put back into its queue, and would leave there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from .. import blocks, slurm
from ..errors import Later, Refused
from ..slurm import Row
from .stages import moment


def start(jobs: Path, rows: Iterable[Row], claims: Collection[tuple[str, str, str]]) -> bool:
    """Start those that have left a capacity block, once the next one has begun, and those that Slurm holds, as their nodes refused them. Returns
    whether there was any: then Slurm's rows are of before.

    Args:
        jobs: the folder of all jobs.
        rows: Slurm's, of whatever jobs.
        claims: the stages that jobs have recorded: (id, stage, number). Members of arrays are left alone.
    """
    any_began = False
    for row in rows:
        if not (row.mine and row.id and not row.index and (row.id, row.stage, row.number) in claims):
            continue
        if (row.state, row.reason) == ("PENDING", "launch failed requeued held"):
            words = ["release", row.number]
        elif (row.state, row.reason) == ("PENDING", "BeginTime") and _may_begin(jobs, row):
            words = ["update", f"JobId={row.number}", "StartTime=now"]
        else:
            continue
        with contextlib.suppress(Refused, Later):
            slurm.run("scontrol", *words)
            any_began = True
    return any_began


def _may_begin(jobs: Path, row: Row) -> bool:
    left = blocks.left(jobs / row.id).count
    return bool(left) and not blocks.waits(jobs, jobs / row.id, row.queue) and not just_ended(row)


def just_ended(row: Row) -> bool:
    """Return whether Slurm ended its last run in the last two seconds, and submitted it anew. In the second of that end a slurmd refuses the job
    ("Job credential revoked"), and Slurm fails it. A start ahead of now would come up to a minute late, and each status would put it off."""
    again = moment(row.submitted)
    return again is not None and again > time.time() - 2
