"""Cancel a job, or a member of an array. Slurm's jobs are found by their names, so a damaged record, or a deleted folder, does not matter."""

from __future__ import annotations

import os
import time
from pathlib import Path

from .. import arrays, layout, records, slurm
from ..errors import Later, NoMember, Refused
from ..requests import Cancel, Cluster
from ..slurm import Row
from . import answers, jobs
from .admission import array_of
from .status import JobStatus

SECONDS = 10
"""For which it waits until Slurm has done it."""


def cancel(cluster: Cluster, given: Cancel) -> JobStatus:
    """Cancel what runs or waits, the last stage first. Returns the job's status, as `answers.status`, once Slurm has done so.

    Raises:
        Unknown: there is no such job.
        NoMember: the array has no such member.
        Theirs: it is another user's.
        Later: Slurm does not answer.
    """
    id, member = layout.split(given.id)
    folder = cluster.jobs / id
    record = records.submitted(folder)
    number = record.numbers.get("train", "") if record else ""
    if member and not (number and member in map(str, arrays.indices(array_of(folder) or "0"))):
        answers.own_job(cluster, given.id, "cancel it")
        raise NoMember(f"{id} has no member {member}")
    here = record is None or record.cluster in ("", cluster.identity)
    if here and _active(id, number, member):
        _mark(folder, member)
        _stop(id, number, member)
        until = time.monotonic() + SECONDS
        while _active(id, number, member) and time.monotonic() < until:
            time.sleep(0.2)
        if not member:
            layout.forget_variables(folder)
    if not os.path.lexists(folder / "submitted.json"):
        # its folder may have been deleted while it ran: then Slurm has all that is known of it
        rows = [row for row in slurm.rows(names=_names(id), ended=True) if row.id == id]
        if rows:
            return jobs.of_rows(rows, cluster, jobs.with_rows(rows))[0]
    return answers.own_job(cluster, given.id, "cancel it")


def _active(id: str, number: str, member: str) -> list[Row]:
    if not member:
        return [row for row in slurm.rows(names=_names(id)) if row.id == id]
    rows = slurm.rows(numbers=[number], members=True)
    return [row for row in rows if row.index == member and row.of(id, "train", number)]


def _names(id: str) -> list[str]:
    return [f"{id}:{stage}" for stage in slurm.STAGES]


def _mark(folder: Path, member: str) -> None:
    """Record that it was cancelled, which a controller may forget in a crash. A member that has not begun has no folder yet."""
    if not os.path.lexists(folder):
        return
    place = folder / member if member else folder
    place.mkdir(exist_ok=True)
    (place / "cancelled").touch()


def _stop(id: str, number: str, member: str) -> None:
    if not member:
        slurm.cancel(*reversed(_names(id)))
        return
    try:
        # its number was just compared with its name and user; given, too, they would cancel all members that wait (Slurm 22.05)
        slurm.run("scancel", f"{number}_{member}")
    except Refused as e:
        raise Later(str(e)) from None
