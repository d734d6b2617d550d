"""Going on from the checkpoints of another job: the newest complete one is copied into the job's folder, once, before it waits for Trainium nodes.
That of S3: `outside`.

The folder that it comes from is only read.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..arrays import indices
from ..errors import Refused
from ..files import read_json
from ..spec import Checkpoints, JobSpec
from . import outside
from .checkpoints import DESCRIPTION, TEMPORARY, check_same, newest
from .making import Failed, Here, NotFetched, check_room, remove, say

STREAMS = 8
"""Files that are copied at once: one alone is slow on a network file system."""
_MARK = "state/resumed"


def resume(here: Here, job: JobSpec) -> None:
    """Copy the checkpoint that a job continues from, for each member of an array, unless it has begun already.

    Raises:
        NotFetched: it is to be copied, and this is only a check.
        Refused: there is none, or this job cannot read it.
        Failed: it was deleted meanwhile: its job still runs.
    """
    made = job.checkpoints
    if made is None or not made.source:
        return
    into = [here.job / str(index) for index in indices(job.array)] if job.array else [here.job]
    if all((each / _MARK).exists() for each in into):
        return
    if made.source.startswith("s3://") and here.check:
        raise NotFetched("checkpoint")
    found = find(here, job, made)
    if here.check:
        raise NotFetched("checkpoint")
    for each in into:
        if not (each / _MARK).exists():
            try:
                _copy_into(each, made, found, move=made.source.startswith("s3://") and each == into[-1])
            except FileNotFoundError:
                raise Failed(f"{made.source} was changed while it was copied. Submit the job again") from None
            (each / _MARK).touch()
    remove(here.job / outside.FOLDER)


def find(here: Here, job: JobSpec, made: Checkpoints) -> Path:
    """The checkpoint that a job continues from: the folder of all, where its program knows of no single one.

    Raises:
        Refused: there is none, or this job cannot read it.
    """
    name = made.source
    if name.startswith("s3://"):
        place = outside.fetch(here, job, made)
    elif name.startswith("/"):
        place = Path(here.root + name)
    else:
        id, _, index = name.partition("/")
        other = here.trn / "jobs" / id
        _check_kind(name, other, job.kind)
        place = other / index / made.folder
    if not place.is_dir():
        raise Refused(f"there is no directory of checkpoints {name} on the cluster. Check the path, or the job's id")
    place = place.resolve()
    check_same(name, place, made)
    if not made.pattern:
        if any(file.name != DESCRIPTION for file in place.rglob("*") if file.is_symlink() or not file.is_dir()):
            return place
    else:
        found = newest(made, place / made.place) or (newest(made, place) if made.place else None)
        if found:
            return found
    raise Refused(
        f"{name} has no checkpoint of {job.kind} that was written to its end. Wait for one, or name another directory or job"
    )


def _check_kind(name: str, other: Path, kind: str) -> None:
    record = read_json(other / "job.json")
    there = record.get("kind") if isinstance(record, dict) else None
    if isinstance(there, str) and there != kind:
        shown = "".join(c for c in there if c.isascii() and c.isprintable())[:40]
        raise Refused(
            f"{name} is a job of kind {shown}, whose checkpoints {kind} does not read. Submit the same kind, or name another job"
        )


def _copy_into(job: Path, made: Checkpoints, found: Path, *, move: bool) -> None:
    folder = job / made.folder / made.place if made.pattern else job / made.folder
    to = folder / found.name if made.pattern else folder
    (job / "state").mkdir(parents=True, exist_ok=True)
    if to.exists():
        return
    if move:
        to.parent.mkdir(parents=True, exist_ok=True)
        found.replace(to)
        return
    part = job / "resumed.part"
    remove(part)
    part.mkdir()
    to.parent.mkdir(parents=True, exist_ok=True)
    every = [one for one in found.rglob("*") if TEMPORARY not in str(one.relative_to(found))]
    files = [found] if found.is_file() else [one for one in every if one.is_symlink() or not one.is_dir()]
    size = sum(one.lstat().st_size for one in files)
    check_room(str(found), size, part)
    say(f"copying {found}, {size} bytes, to {to}")
    copied = part / "copied"
    if found.is_dir():
        for one in [found, *(one for one in every if one.is_dir() and not one.is_symlink())]:
            (copied / one.relative_to(found)).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(STREAMS) as pool:  # links stay links
        for _ in pool.map(lambda one: shutil.copy2(one, copied / one.relative_to(found), follow_symlinks=False), files):
            pass
    copied.replace(to)
    remove(part)
