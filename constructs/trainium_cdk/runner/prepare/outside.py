"""Going on from a checkpoint in S3 (`--resume-from s3://...`): one that `work.keep` has kept, or whatever is below an address. Whoever may write there
has written what is read here.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from .. import bucket
from ..bucket import SUFFIX, Mark, stats
from ..errors import Refused
from ..spec import Checkpoints, JobSpec, from_json
from .checkpoints import DESCRIPTION, check_same, describe
from .making import Failed, Here, check_room, remove, say

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
        there = {name: size for name, size in bucket.sizes(here.variables, source).items() if _is_inside(name)}
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
            bucket.copy(here.variables, f"{source}/{DESCRIPTION}", str(place / DESCRIPTION))
        check_same(source, place, made)
        say(f"fetching {source}{at}: {size} bytes{_transfer(here, source, made, size)}")
        check_room(source + at, size, place)
        if list(files) == [""]:
            bucket.copy(here.variables, source + at, str(to))
        else:
            bucket.sync(here.variables, source + at, str(to), "--delete")
    except bucket.Unreached as e:
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
            mark = from_json(Mark, json.loads(bucket.copy(here.variables, source + at + SUFFIX, "-")), strict=False)
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
    with contextlib.suppress(bucket.Unreached, ValueError, KeyError):
        name = source[len("s3://") :].partition("/")[0]
        words = ("s3api", "get-bucket-location", "--bucket", name, "--output=json")
        found = json.loads(bucket.run(here.variables, *words))["LocationConstraint"] or "us-east-1"
        region = "eu-west-1" if found == "EU" else found
        if region != here.variables.get("AWS_REGION", region):
            usd = (
                f"about {made.transfer[region] * size / 1e9:.2f} USD" if region in made.transfer else "by the gigabyte"
            )
            return f". It is in {region}: AWS charges {usd} for the transfer and the NAT gateway"
    return ""
