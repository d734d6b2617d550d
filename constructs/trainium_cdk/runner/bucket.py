"""Objects in S3, by the AWS CLI of the job's programs, with the role of jobs; and the mark of a checkpoint there, which `work.keep` writes and
`prepare.resume` reads. An address is s3://BUCKET/KEY."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import Refused


class Unreached(Exception):
    """S3 has refused a request, or does not answer; the message is the AWS CLI's."""


def run(variables: Mapping[str, str], *words: str, text: str = "") -> str:
    """Run the AWS CLI. Returns its output.

    Args:
        variables: of the process.
        text: its input.

    Raises:
        Refused: there is no AWS CLI on their PATH.
        Unreached: it has failed.
    """
    aws = shutil.which("aws", path=variables.get("PATH"))
    if aws is None:
        raise Refused("there is no AWS CLI here, which reads and writes S3. Use an image that has it")
    done = subprocess.run(
        [aws, *words], env=dict(variables), input=text, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise Unreached((lines or [f"aws ended with {done.returncode}"])[-1][:400])
    return done.stdout


def sizes(variables: Mapping[str, str], address: str) -> dict[str, int]:
    """The bytes of each object at an address or below it, by the rest of its address, the last written first. Raises as `run`."""
    bucket, _, key = address[len("s3://") :].partition("/")
    words = ("s3api", "list-objects-v2", "--output=json", f"--bucket={bucket}", f"--prefix={key}")
    found: Any = json.loads(run(variables, *words, "--query=Contents[].[Key,Size,LastModified]") or "null") or []
    there = {
        (name[len(key) :] if key else f"/{name}"): size
        for name, size, _ in sorted(found, key=lambda one: str(one[2]), reverse=True)
    }
    return {name: size for name, size in there.items() if name in ("", SUFFIX) or (name[0] == "/" and name[-1] != "/")}


def files(variables: Mapping[str, str], address: str) -> dict[str, int]:
    """`sizes` without the mark of a checkpoint."""
    return {name: size for name, size in sizes(variables, address).items() if name != SUFFIX}


def sync(variables: Mapping[str, str], source: str, target: str, *options: str) -> None:
    """Copy what differs from one folder to another one. Either is an address. Raises as `run`."""
    words = (source.rstrip("/") + "/", target.rstrip("/") + "/", "--only-show-errors", "--no-progress", *options)
    run(variables, "s3", "sync", *words)


def copy(variables: Mapping[str, str], source: str, target: str, text: str = "") -> str:
    """Copy an object or a file; `-`: to the output that is returned, or from `text`. Raises as `run`."""
    return run(variables, "s3", "cp", "--only-show-errors", source, target, text=text)


def remove(variables: Mapping[str, str], address: str, *options: str) -> None:
    """Delete an object; with `--recursive`, all whose addresses begin so. Raises as `run`."""
    run(variables, "s3", "rm", "--only-show-errors", address, *options)


# --- what says that a checkpoint is whole -----------------------------------------------------------------------------------------------

SUFFIX = ".trn-complete"
"""The end of a mark's address, after the checkpoint's own."""


@dataclass(frozen=True)
class Mark:
    """The mark of a whole checkpoint.

    Attributes:
        kind: of its job. same: what a job that continues from it must have in common with that one (`spec.Checkpoints`).
        files: their bytes, by the rest of their addresses; one that is a file itself has the empty rest.
    """

    kind: str
    same: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


def stats(checkpoint: Path) -> dict[str, tuple[int, int]]:
    """The bytes and the time of change, in nanoseconds, of each file of a checkpoint, as `Mark.files` names them.

    Raises:
        OSError: it has just been deleted.
        Refused: it has a link: S3 has none.
    """
    seen = {str(one)[len(str(checkpoint)) :]: one.lstat() for one in (checkpoint, *checkpoint.rglob("*"))}
    for name, one in seen.items():
        if stat.S_ISLNK(one.st_mode):
            raise Refused(f"{checkpoint.name}{name} is a link, which S3 does not have. Save a copy in its place")
    return {name: (one.st_size, one.st_mtime_ns) for name, one in sorted(seen.items()) if stat.S_ISREG(one.st_mode)}


def name_of(checkpoint: Path, stats: Mapping[str, tuple[int, int]]) -> str:
    """Where a checkpoint of this content is kept: `DIGEST/NAME`. Another content is kept elsewhere."""
    return f"{hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:12]}/{checkpoint.name}"
