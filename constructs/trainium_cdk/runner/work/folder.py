"""The jobs' folder on a new file system: an init container of each pod makes it, as root where the file system's root belongs to root."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path


def main(place: str, *others: str) -> None:
    """Make the jobs' folder, and folders that files are copied into."""
    try:
        make(place)
        for other in others:
            make_below(Path(other))
    except OSError as e:
        sys.exit(f"trn: the jobs' folder {place} cannot be made: {e.strerror}")


def make(place: str) -> None:
    """A folder in which each user may make files, and delete only their own. One that is there stays as it is, and so does a link.

    Raises:
        OSError: it cannot be made, or is not a folder.
    """
    Path(place).mkdir(parents=True, exist_ok=True)
    if Path(place).is_symlink():  # of an administrator: whoever could change it afterwards, it is not followed
        return
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not os.fstat(folder).st_mode & stat.S_ISVTX:
            os.fchmod(folder, 0o1777)
    finally:
        os.close(folder)


def make_below(place: Path) -> None:
    """Make the first folder that is missing on the way to this one, as `make` does, if only root may: in it, others make the rest themselves.
    Where others may write already, a link could come meanwhile. Nothing is made through a link.

    Raises:
        OSError: it cannot be made.
    """
    if place.exists() or Path(os.path.realpath(place)) != place:
        return
    missing = [place, *(one for one in place.parents if not one.exists())]
    above = missing[-1].parent.stat()
    if above.st_uid != 0 or above.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    before = os.umask(0)
    try:
        missing[-1].mkdir(0o1777)
    finally:
        os.umask(before)
