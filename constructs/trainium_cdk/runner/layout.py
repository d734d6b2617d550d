"""Paths on the shared file system: this program, the folder of a job, and the folder of an array's member. A submission makes the job's folder; a
member makes its own when it begins. The words of a program, once their places are known. And the folder of a user's jobs, which anybody may have
made."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import files
from .errors import Refused, Theirs, Unknown
from .requests import Cluster
from .spec import ARRAY_PATTERN, JobSpec, Only, Place, SpecError, Word, array_problem, from_json, to_json

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,89}")
"""The form of a job's id, which is the name of its folder."""
_MEMBER = re.compile(r"(?:/([0-9]{1,3}))?")
PLACE = "trn-runner"
"""Folder of root's on the shared file system: each version of this program is a file in it, by the name of its SHA-256."""
OFFER = "forward"
"""File in a job's folder, readable for its user only: a port of its node, a space, and the path of the URL, which may hold a token."""
LINKED_FROM_BYTES, LINKED_FROM_ENTRIES = 100_000, 500
"""Members of an array share larger files, and folders with more entries. The rest of the code is copied for each."""
COPIES_AT_ONCE = 16
"""A file system over the network takes milliseconds for each file."""


def split(id: str) -> tuple[str, str]:
    """A job's id, and the index of its member; empty if it is none.

    Raises:
        Unknown: no job can have that id.
    """
    job, slash, _ = id.partition("/")
    member = _MEMBER.fullmatch(id[len(job) :])
    if not ID.fullmatch(job) or member is None:
        raise Unknown(f"there is no job {id[:100]!r}")
    return job, member[1] or "" if slash else ""


def lay_out(folder: Path, job: JobSpec) -> None:
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
            raise Refused(f"{name!r} is not a file name. Use one without slashes")
        files.write(folder / "files" / name, content, 0o700)
    files.write_json(folder / "job.json", to_json(dataclasses.replace(job, variables={}, files={})), 0o600)
    write_variables(folder, job)


def read_job(folder: Path) -> JobSpec:
    """A job's record, also of another version.

    Raises:
        SpecError: there is none, or it is damaged.
    """
    return from_json(JobSpec, files.read_json(folder / "job.json"), strict=False)


def newest_jobs(cluster: Cluster, limit: int, record: str = "submitted.json") -> list[str]:
    """The ids of the newest jobs, newest first, by this file in their folders."""
    found: list[tuple[float, str]] = []
    with contextlib.suppress(OSError), os.scandir(cluster.jobs) as folders:
        for folder in folders:
            if ID.fullmatch(folder.name):
                with contextlib.suppress(OSError):
                    found.append((Path(folder.path, record).lstat().st_mtime, folder.name))
    return [id for _, id in sorted(found, reverse=True)[: max(0, limit)]]


def array_of(folder: Path) -> str:
    """The indices of a job's members, as its record has them; empty of one that is not an array, or whose record is damaged."""
    try:
        array = read_job(folder).array
    except SpecError:
        return ""
    return array if array and re.fullmatch(ARRAY_PATTERN, array) and not array_problem(array) else ""


def write_variables(folder: Path, job: JobSpec) -> None:
    files.write_json(folder / "env.json", dict(job.variables), 0o600)


def forget_variables(folder: Path) -> None:
    """Delete a job's variables, which may be secrets, once nothing starts it again. A submission that does brings them."""
    with contextlib.suppress(OSError):
        (folder / "env.json").unlink()


def lay_out_member(root: Path, index: str) -> Path:
    """Make the folder of a member of an array, and return it. It runs in a copy of the code: files that it writes are its own.

    Slurm writes a member's log to `logs/INDEX.log` of the array, as no folder of the member is there when it begins. It is `train.log` of the member, too.
    """
    job = root / index
    for name in ("logs", "state", "work"):
        (job / name).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (job / "files").symlink_to("../files")
    if (root / "environment").exists():
        with contextlib.suppress(FileExistsError):
            (job / "environment").symlink_to("../environment")
    if (root / "code").is_dir() and not os.path.lexists(job / "code"):
        _copy_code(root / "code", job / "code")
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        os.link(root / "logs" / f"{index}.log", job / "logs" / "train.log")
    return job


def _copy_code(source: Path, target: Path) -> None:
    """Copy a job's code, whole or not at all. Several nodes of a member may do so at once. Large files and folders become links to the source."""
    import tempfile  # both are slow, and for arrays alone
    from concurrent.futures import ThreadPoolExecutor

    part = Path(tempfile.mkdtemp(prefix=".code.", dir=target.parent))
    part.chmod(0o755)
    try:
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            for done in [pool.submit(_copy_file, file, at) for file, at in _files(source, part)]:
                done.result()
        part.rename(target)
    except OSError:
        if not target.is_dir():  # else another node was first
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _files(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """The files below a folder, with their places in another one, in which all folders are made."""
    with os.scandir(source) as found:
        entries = list(found)
    for entry in entries:
        file, at = source / entry.name, target / entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield file, at
        elif len(os.listdir(file)) > LINKED_FROM_ENTRIES:  # noqa: PTH208  all at once
            _link(file, at)
        else:
            at.mkdir()
            yield from _files(file, at)


def _copy_file(source: Path, target: Path) -> None:
    if source.is_symlink() or source.stat().st_size <= LINKED_FROM_BYTES:
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        _link(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(os.path.relpath(source, target.parent))


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


# --- words of a program, once their places are known -------------------------------------------------------------------------------------


class UnknownPlace(KeyError):
    """A word names a place that there is not here; its argument is the name."""


def folder_places(job: Path, trn: Path) -> dict[str, str]:
    """The places that are known of a job before it has nodes.

    Args:
        job: its folder.
        trn: the folder of data, sources and models.
    """
    return {"job": str(job), "files": str(job / "files"), "trn": str(trn), "root": files.shared_root()}


def resolve(word: Word, places: Mapping[str, str]) -> str:
    """A word as the program gets it.

    Args:
        places: the text of each place, by its name.

    Raises:
        UnknownPlace: there is no such place on this engine, or in this stage.

    >>> resolve(("--cache=", Place("cache"), "/x"), {"cache": "/efs/c"})
    '--cache=/efs/c/x'
    >>> resolve("{job} $job", {})
    '{job} $job'
    """
    if isinstance(word, str):
        return word
    made = []
    for part in word:
        if isinstance(part, Place):
            if part.name not in places:
                raise UnknownPlace(part.name)
            made.append(places[part.name])
        elif isinstance(part, Only):
            made.append(_only(Path(resolve(part.of, places))))
        else:
            made.append(part)
    return "".join(made)


def _only(folder: Path) -> str:
    try:
        inside = list(folder.iterdir())
    except OSError:
        return str(folder)
    return str(inside[0] if len(inside) == 1 and inside[0].is_dir() else folder)


# --- the folder of a user's jobs, which anybody may have made ---------------------------------------------------------------------------


def check_folder(cluster: Cluster) -> None:
    """Check that the jobs are this user's. Each user has its own folder; for a user of a directory, it is made here.

    Raises:
        Theirs: they belong to somebody else, or the folder was made by somebody else.
    """
    if cluster.multi_user and "/" in cluster.folder:
        _check_own(cluster.trn)
    jobs = cluster.jobs
    if jobs.is_dir() and (jobs.stat().st_uid != os.getuid() or not os.access(jobs, os.W_OK)):
        owner = owner_of(jobs)
        raise Theirs(
            f"the jobs in {jobs} belong to {owner}, and you are {user()}. Run this as {owner} (sudo -Hu {owner} trn ...), or give --ssm. "
            f"If they are of an earlier version, an administrator can give them to {user()} when they have ended: sudo chown -hR {user()}: {cluster.trn}"
        )


def _check_own(trn: Path) -> None:
    with contextlib.suppress(OSError):
        trn.mkdir(mode=0o700)
    if not os.path.lexists(trn):
        raise Theirs(
            f"there is no {trn}: the head node's bootstrap makes it for each user of the cluster, and has not finished. Wait until the cluster is deployed"
        )
    if trn.is_symlink() or not trn.is_dir() or trn.lstat().st_uid != os.getuid():
        what = "symbolic link" if trn.is_symlink() else "directory" if trn.is_dir() else "regular file"
        raise Theirs(
            f"{trn} is not a folder of {user()}, but a {what} of {owner_of(trn)}. An administrator can remove it"
        )


def user() -> str:
    """The name of the user who asks."""
    return _name(os.getuid())


def owner_of(path: Path) -> str:
    return _name(path.lstat().st_uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
