"""Data sets of S3, by the AWS CLI, in the folder `data` that all jobs share. (Archives: `archives`.)"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path

from ..errors import Refused
from .making import Failed, Here, check_room, once, remove, say

READ = 1 << 20


def file(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch one object into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name / uri.rpartition("/")[2]
    once(here, f"data-{name}-{target.name}", target, partial(_fetch, here, uri, target, wanted(here, sha256), public))


def prefix(here: Here, name: str, uri: str) -> None:
    """Fetch everything below a prefix; after an interruption, what is not there yet."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_sync, here, uri.rstrip("/") + "/", target))


def wanted(here: Here, sha256: str) -> str:
    """The checksum, unless the nodes accept any content of the public data sets."""
    return "" if here.variables.get("TRN_UNVERIFIED_DATA") else sha256


def verify(uri: str, actual: str, sha256: str) -> None:
    """Compare the checksum of an object, if it is known.

    Raises:
        Refused: it is another one.
    """
    if sha256 and actual != sha256:
        raise Refused(
            f"{uri} has the SHA-256 {actual}, and not {sha256}: it was replaced or damaged. It was deleted. Use another copy"
        )
    if sha256:
        say(f"SHA-256 of {uri} verified")


def size_of(here: Here, uri: str, public: bool) -> int:
    """Bytes of an object.

    Raises:
        Failed: it cannot be read.
    """
    bucket, _, key = uri[len("s3://") :].partition("/")
    code, output, errors = here.ask(
        ["aws", "s3api", "head-object", f"--bucket={bucket}", f"--key={key}", "--output=json", *unsigned(public)]
    )
    try:
        return int(json.loads(output)["ContentLength"])
    except (ValueError, KeyError, TypeError):
        why = errors.strip()[-300:] or f"aws ended with {code}"
        raise Failed(f"cannot read {uri}: {why}. Check that it exists and may be read from here") from None


def unsigned(public: bool) -> list[str]:
    """The option of the AWS CLI for buckets that anybody reads."""
    return ["--no-sign-request"] if public else []


def _fetch(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching {uri}: {size} bytes")
    if here.run(["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, str(part)]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    try:
        verify(uri, _digest(part), sha256)
    except Refused:
        part.unlink()
        raise
    part.replace(target)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as content:
        for piece in iter(lambda: content.read(READ), b""):
            found.update(piece)
    return found.hexdigest()


def _sync(here: Here, uri: str, target: Path) -> None:
    say(f"fetching {uri}")
    part = target.with_name(f"{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    if here.run(["aws", "s3", "sync", "--only-show-errors", "--delete", uri, f"{part}/"]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. What arrived is kept: submit the job again")
    if not any(part.iterdir()):
        raise Refused(f"there is nothing at {uri}. Check the bucket and the prefix")
    remove(target)
    part.rename(target)
