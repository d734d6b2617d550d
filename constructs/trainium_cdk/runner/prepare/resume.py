"""Going on from the checkpoints of another job: the newest complete one is copied into the job's folder, once, before it waits for Trainium nodes.
The folder that it comes from is only read.

From S3 (`--resume-from s3://...`) it is one that `work.keep` has kept, or whatever is below an address. Whoever may write there has written what is read
here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import aws
from ..aws import SUFFIX, Mark, stats
from ..errors import Refused
from ..files import read_json
from ..spec import Checkpoints, JobSpec, array_indices, from_json
from . import Failed, Here, NotFetched, check_room, remove, say
from .checkpoints import DESCRIPTION, TEMPORARY, check_same, describe, newest

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
    into = [here.job / str(index) for index in array_indices(job.array)] if job.array else [here.job]
    if all((each / _MARK).exists() for each in into):
        return
    if made.source.startswith("s3://") and here.check:
        raise NotFetched("checkpoint")
    try:
        found = find(here, job, made)
        if here.check:
            raise NotFetched("checkpoint")
        for each in into:
            if not (each / _MARK).exists():
                _copy_into(each, made, found, move=made.source.startswith("s3://") and each == into[-1])
                (each / _MARK).touch()
    except FileNotFoundError:
        raise Failed(f"{made.source} was changed while it was copied. Submit the job again") from None
    remove(here.job / FOLDER)


def find(here: Here, job: JobSpec, made: Checkpoints) -> Path:
    """The checkpoint that a job continues from: the folder of all, where its program knows of no single one.

    Raises:
        Refused: there is none, or this job cannot read it.
    """
    name = made.source
    if name.startswith("s3://"):
        place = fetch(here, job, made)
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


# --- from S3 ----------------------------------------------------------------------------------------------------------------------------

FOLDER = "resumed.s3"
"""In a job's folder: what is fetched."""
_LARGEST = 2**24
"""Bytes of a mark that are read."""


def fetch(here: Here, job: JobSpec, made: Checkpoints) -> Path:
    """Fetch from S3 the checkpoint that was kept last and is whole; where none was kept, all that is there. Returns the folder with it. What has
    arrived is not fetched again by a second attempt.

    Raises:
        Refused: there is nothing, or this job cannot read it.
        Failed: S3 refuses it, or does not answer.
    """
    source, place = made.source.rstrip("/"), here.job / FOLDER
    try:
        there = {name: size for name, size in aws.sizes(here.variables, source).items() if _is_inside(name)}
        at, mark = _newest_kept(here, source, there, job.kind)
        files = mark.files if mark else {name: size for name, size in there.items() if name}
        if not files:
            raise Refused(f"{source} has no complete checkpoint. Check the bucket and the prefix, or wait for one")
        to, size = place / (source + at).rpartition("/")[2] if mark else place, sum(files.values())
        place.mkdir(parents=True, exist_ok=True)
        for one in place.iterdir() if mark else ():
            if one != to:
                remove(one)
        if mark:
            describe(mark.same, place)
        elif f"/{DESCRIPTION}" in there:
            aws.copy(here.variables, f"{source}/{DESCRIPTION}", str(place / DESCRIPTION))
        check_same(source, place, made)
        say(f"fetching {source}{at}: {size} bytes{_transfer(here, source, made, size)}")
        check_room(source + at, size, place)
        if list(files) == [""]:
            aws.copy(here.variables, source + at, str(to))
        else:
            aws.sync(here.variables, source + at, str(to), "--delete")
    except aws.Unreached as e:
        raise Failed(f"{source} could not be read: {e}. Submit the job again, or let jobs read it") from None
    if {name: size for name, (size, _) in stats(to).items()} != dict(files):
        raise Failed(f"{source}{at} did not arrive whole. Submit the job again")
    now = time.time()
    for file in [to] if to.is_file() else to.rglob("*"):
        os.utime(file, (now, now))  # of the times in S3, that of what was written last may be an earlier one
    return place


def _newest_kept(here: Here, source: str, there: Mapping[str, int], kind: str) -> tuple[str, Mark | None]:
    """Find the checkpoint of a kind below an address that was kept last and is whole.

    Raises:
        Refused: there are some, and none is; or they are of several jobs.
    """
    marks = [one[: -len(SUFFIX)] for one in there if one.endswith(SUFFIX) and there[one] <= _LARGEST]
    why = f"{source} has no complete checkpoint. Wait for one, or name another address or job"
    for at in marks:
        try:
            mark = from_json(Mark, json.loads(aws.copy(here.variables, source + at + SUFFIX, "-")), strict=False)
        except (ValueError, RecursionError):
            continue
        has = {name[len(at) :]: size for name, size in there.items() if name == at or name.startswith(f"{at}/")}
        if mark.kind != kind:
            shown = "".join(c for c in mark.kind if c.isascii() and c.isprintable())[:40]
            why = f"{source}{at} is a checkpoint of {shown}, which {kind} does not read. Submit the same kind, or name another"
        elif not has or has != dict(mark.files):
            say(f"{source}{at} is not whole: the one before it is used")
        elif len(jobs := {_job_of(one) for one in marks}) > 1:
            raise Refused(f"{source} has checkpoints of {len(jobs)} jobs. Name one, for example {source}{_job_of(at)}")
        else:
            return at, mark
    if marks:
        raise Refused(why)
    return "", None


def _job_of(at: str) -> str:
    """The part of a checkpoint's address before DIGEST/NAME."""
    return at.rpartition("/")[0].rpartition("/")[0]


def _is_inside(name: str) -> bool:
    """Return whether the rest of an address, as part of a path, leads nowhere else.

    >>> [_is_inside(one) for one in ("", ".trn-complete", "/a/b..c", "/../a", "/a//b", "/...trn-complete")]
    [True, True, True, False, False, False]
    """
    parts = name.removesuffix(SUFFIX)[1:].split("/")
    return name in ("", SUFFIX) or not {"", ".", ".."} & set(parts)


def _transfer(here: Here, source: str, made: Checkpoints, size: int) -> str:
    """Describe the cost of reading another region's bucket; empty for this region's, or where that is not known."""
    with contextlib.suppress(aws.Unreached, ValueError, KeyError):
        name = source[len("s3://") :].partition("/")[0]
        words = ("s3api", "get-bucket-location", "--bucket", name, "--output=json")
        found = json.loads(aws.run(here.variables, *words))["LocationConstraint"] or "us-east-1"
        region = "eu-west-1" if found == "EU" else found
        if region != here.variables.get("AWS_REGION", region):
            usd = (
                f"about {made.transfer[region] * size / 1e9:.2f} USD" if region in made.transfer else "by the gigabyte"
            )
            return f". It is in {region}: AWS charges {usd} for the transfer and the NAT gateway"
    return ""
