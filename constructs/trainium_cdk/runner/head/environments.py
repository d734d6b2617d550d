"""The environments of jobs' own packages on the shared file system: which there are, and removing them. (Making one: `packages`.)"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import files, slurm
from ..errors import Refused
from ..prepare.bases import RECORD
from ..records import one_line
from ..requests import Cluster, ListEnvironments, RemoveEnvironments
from .jobs import ID

_NAME = re.compile(r"[0-9a-f]{12}")
_MOST = 20_000


def list_environments(cluster: Cluster, given: ListEnvironments) -> Any:
    """Each environment's record and requirements, the name of the one that each job uses, and the jobs that run or wait."""
    place = cluster.trn / "environments"
    found = []
    for name in _names(place):
        if _NAME.fullmatch(name):
            folder = place / name
            record = files.read_json(folder / RECORD, _MOST)
            if isinstance(record, dict):
                found.append({"name": name, "record": record, "requirements": _lines(folder / "requirements.txt")})
    used = {id: _used(cluster.jobs / id) for id in _names(cluster.jobs) if ID.fullmatch(id)}
    active = {row.id for row in slurm.rows(others=True) if row.id} if given.active else ()
    return {
        "environments": found,
        "used": {id: name for id, name in used.items() if name},
        "active": sorted(active),
    }


def remove(cluster: Cluster, given: RemoveEnvironments) -> Any:
    """Remove environments. The name goes first, so that no job finds half of one; what no name leads to is of an interrupted attempt."""
    place, locks = cluster.trn / "environments", cluster.trn / "done"
    for name in given.names:
        if not _NAME.fullmatch(name):
            raise Refused(f"there is no environment {name[:80]!r}")
        locks.mkdir(exist_ok=True)
        with _locked(locks / f"environment-{name}.lock"):
            with contextlib.suppress(FileNotFoundError):
                (place / name).unlink()
            for other in _names(place):
                if other.startswith(f".{name}."):
                    shutil.rmtree(place / other)
    return {}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _used(job: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = files.read(job / "environment", 100).decode().strip()
        return text if _NAME.fullmatch(text) else ""
    return ""


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        lines = files.read(path, _MOST).decode(errors="replace").splitlines()
        return [one_line(line) for line in lines]
    return []


def _names(folder: Path) -> list[str]:
    try:
        return sorted(one.name for one in folder.iterdir())
    except OSError:
        return []
