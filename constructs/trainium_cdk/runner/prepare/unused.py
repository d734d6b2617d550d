"""Removing the virtual environments of jobs' packages that no job uses any more. (Making one: `packages`.)"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from pathlib import Path

from .. import files, records, slurm
from ..errors import Later, Refused
from .making import RECORD, Here, remove, say

DAYS = 30
"""Days for which a virtual environment stays after its last use."""
_NAME = re.compile(r"[0-9a-f]{12}")


def remove_unused(here: Here) -> None:
    """Remove each virtual environment that no job has used for `DAYS` days and that no waiting job names, and say which.

    A job uses one when it finds or makes it (`mark_used`), and while its log grows. Whether a job waits, Slurm's queue says; where there is none,
    a job waits that has not begun to train. What cannot be removed stays, and fails no job.
    """
    place, before = here.trn / "environments", time.time() - DAYS * 86_400
    old = {name for name in _names(place) if _NAME.fullmatch(name) and _used_at(place / name) < before}
    if not old:
        return
    with contextlib.suppress(Later, Refused):  # Slurm does not answer: another time
        for name in sorted(old - _in_use(here, before)):
            with contextlib.suppress(OSError):
                _remove(here, place / name, before)


def mark_used(place: Path) -> None:
    """Record that a job uses a virtual environment now, if it is there. It does so before it looks for it (`_remove`)."""
    with contextlib.suppress(OSError):
        os.utime(place / RECORD)


def _used_at(place: Path) -> float:
    """Return the time at which a job last used a folder, in seconds since 1970. The record is opened: NFS then asks for the time anew."""
    try:
        with (place / RECORD).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def _in_use(here: Here, before: float) -> set[str]:
    """The names of virtual environments that waiting, running or lately ended jobs use."""
    queue = {row.id for row in slurm.rows(others=True)} if shutil.which("squeue") else None
    jobs, used = here.trn / "jobs", set[str]()
    for id in _names(jobs):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            name = files.read(jobs / id / "environment", 100).decode().strip()
            waits = id in queue if queue is not None else not records.is_cancelled(jobs / id) and not _logs(jobs / id)
            if waits or any(one.stat().st_mtime >= before for one in _logs(jobs / id)):
                used.add(name)
    return used


def _logs(job: Path) -> list[Path]:
    """The logs of a job's training, also of the members of an array."""
    return [*job.glob("logs/train*.log"), *job.glob("*/logs/train*.log")]


def _remove(here: Here, link: Path, before: float) -> None:
    """Remove a virtual environment under the lock of those who make it. Its name goes first, so that no job finds half of one; it comes back where a
    job has found it just before."""
    marker = here.trn / "done" / f"environment-{link.name}"
    with marker.with_name(f"{marker.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside = link.with_name(f".{link.name}.unused")
        link.rename(aside)
        if _used_at(aside) >= before:
            aside.rename(link)
            return
        record = files.read_json(aside / RECORD, 20_000)
        size = record.get("megabytes") if isinstance(record, dict) else None
        for part in link.parent.glob(f".{link.name}.*"):
            remove(part)
        say(
            f"removed the packages {link.name} ({size if isinstance(size, int) else '?'} MB), which no job has used for {DAYS} days"
        )


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []
