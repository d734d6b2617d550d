"""What lies on the shared file system: this program, a job's folder as its submission makes it, and that of a member of an array, which it makes
itself when it begins."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
from pathlib import Path

from . import files
from .errors import Refused
from .requests import Cluster
from .spec import Job, from_json, to_json

PLACE = "trn-runner"
"""Folder of root's on the shared file system: each version of this program is a file in it, by the name of its SHA-256."""
OFFER = "forward"
"""File in a job's folder, readable for its user only: a port of its node, a space, and the path of the URL, which may hold a token."""


def lay_out(folder: Path, job: Job) -> None:
    """Make a job's folder. What it is, and what its kind sends, is its user's alone.

    Raises:
        Refused: a file has no plain name.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("logs", "state", "work"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "files").mkdir(mode=0o700, exist_ok=True)
    for name, content in job.files.items():
        if "/" in name or name in ("", ".", ".."):
            raise Refused(f"{name!r} is no name of a file. Use one without slashes")
        files.write(folder / "files" / name, content, 0o700)
    files.write_json(folder / "job.json", to_json(dataclasses.replace(job, variables={}, files={})), 0o600)
    write_variables(folder, job)


def read_job(folder: Path) -> Job:
    """A job's record, also of another version.

    Raises:
        SpecError: there is none, or it is damaged.
    """
    return from_json(Job, files.read_json(folder / "job.json"), strict=False)


def write_variables(folder: Path, job: Job) -> None:
    files.write_json(folder / "env.json", dict(job.variables), 0o600)


def forget_variables(folder: Path) -> None:
    """Delete a job's variables, which may be secrets, once it has completed or was cancelled: nothing starts it again."""
    with contextlib.suppress(OSError):
        (folder / "env.json").unlink()


def lay_out_member(root: Path, index: str) -> Path:
    """Make the folder of a member of an array, in which what all have in common is the array's; and return it.

    Slurm writes a member's log to `logs/INDEX.log` of the array, as no folder of the member is there when it begins. It is `train.log` of the member, too.
    """
    job = root / index
    for name in ("logs", "state", "work"):
        (job / name).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (job / "files").symlink_to("../files")
    for name in ("code", "environment"):
        if (root / name).exists():
            with contextlib.suppress(FileExistsError):
                (job / name).symlink_to(f"../{name}")
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.link(root / "logs" / f"{index}.log", job / "logs" / "train.log")
    return job


def remove(folder: Path) -> None:
    """Delete a job's folder. It is the record of a submission that was interrupted, so all else of that is undone first."""
    shutil.rmtree(folder)


def path_for_jobs(cluster: Cluster) -> str:
    """The path by which nodes find this program. Where root has not placed it, it is copied into the folder of the user's own: who runs `trn` on
    a head node cannot ask root."""
    here = Path(sys.argv[0]).absolute()
    if here.parent == cluster.shared / PLACE:
        return str(here)
    content = here.read_bytes()
    copy = cluster.trn / "runner" / f"{hashlib.sha256(content).hexdigest()}.pyz"
    copy.parent.mkdir(exist_ok=True)
    files.write(copy, content)  # one that differs is replaced: a job may have written it
    return str(copy)
