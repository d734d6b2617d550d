"""Files of jobs, which lie where jobs can write: written whole or not at all, and read without following anybody's link."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST = 4_000_000
"""Bytes of a record that are read."""


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all. A file of the same content stays as it is: a program may be reading it over NFS."""
    with contextlib.suppress(OSError):
        if read(path, len(content) + 1) == content:
            return
    part = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(part, flags, mode), "wb") as out:
            os.fchmod(out.fileno(), mode)
            out.write(content)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    """Write plain data as JSON, as `write` does."""
    write(path, (json.dumps(value, sort_keys=True) + "\n").encode(), mode)


def create(path: Path, value: Any) -> bool:
    """Write plain data as JSON, whole, if there is no such file yet: whoever is first. It is atomic, over NFS too."""
    part = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.new")
    write_json(part, value)
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True


def read(path: Path, most: int = MOST) -> bytes:
    """The first bytes of a regular file; a pipe or a device is not opened, and of a link nothing is read.

    Raises:
        OSError: there is none, or it is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(most)


def read_end(path: Path, most: int, begin: int = 0) -> bytes:
    """The last bytes of a regular file, none before `begin`. Raises as `read`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        file.seek(max(begin, status.st_size - most))
        return file.read(most)


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock a folder of this machine, at most as long as this process lives.

    Raises:
        BlockingIOError: another process has it.
        OSError: there is no such folder, or it is another user's.
    """
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)


def remove_left(folder: Path, pattern: str) -> None:
    """Remove the folders of processes that were killed: those that nobody holds.

    A number in a name would say nothing. It may be of another container's process, which shares this folder.
    """
    for left in folder.glob(pattern):
        with contextlib.suppress(OSError), hold(left):
            shutil.rmtree(left, ignore_errors=True)


def refresh(*folders: Path) -> None:
    """Refresh NFS's cache: it remembers for half a minute that a file does not exist, until its folder is listed."""
    for folder in folders:
        with contextlib.suppress(OSError):
            os.listdir(folder)  # noqa: PTH208  all at once


def read_json(path: Path, most: int = MOST) -> Any:
    """The plain data of a record; None if there is none, or it is damaged."""
    try:
        return json.loads(read(path, most))
    except (OSError, ValueError, RecursionError):
        return None


def shared_root() -> str:
    """Return the folder before an absolute path of a shared file system, in a sandbox; else empty."""
    return os.environ.get("TRN_SHARED_ROOT", "")
