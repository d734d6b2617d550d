"""The files of jobs' logs, and pieces of them. A job can write its own: what is not a regular file is not opened."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .. import files
from ..errors import Refused
from ..requests import Cluster, LogPiece
from ..spec import Packed

_BLOCK, _MOST = 1 << 16, 1 << 24  # bytes that are read at once, and of a log's end in which last lines are looked for


def piece(path: Path, name: str, offset: int, most: int, tail: int | None) -> LogPiece:
    """A piece of a log.

    Args:
        name: of the log, as an error has it.
        offset, most, tail: as of `requests.ReadLog`.

    Raises:
        FileNotFoundError: there is none.
        Refused: it is not a regular file.
    """
    with open_log(path, name) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(offset, 0)
        if tail is not None:
            begin = max(begin, last_lines(file, size, tail))
        data = b""
        if begin < size:  # a file system may not take an offset far behind the end
            file.seek(begin)
            data = file.read(max(0, most))
        return LogPiece(size, begin if data else min(begin, size), Packed(data))


def read_end(cluster: Cluster, id: str, stage: str, most: int) -> bytes:
    """The last lines of a log, at most so many bytes; empty if there is none, or it cannot be read. The first line is whole, as it begins with its
    node and worker."""
    with contextlib.suppress(OSError, Refused), open_log(path_of(cluster, id, stage, None), "") as file:
        size = os.fstat(file.fileno()).st_size
        end = _at(file, max(0, size - most), size)
        return end[end.find(b"\n") + 1 :] if size > most else end
    return b""


def last_lines(file: BinaryIO, size: int, count: int) -> int:
    """Return the offset at which the last lines of a file begin. A line without an end is one, too."""
    if count <= 0:
        return size
    at, least = size, max(0, size - _MOST)
    if size and _at(file, size - 1, size) == b"\n":
        at -= 1  # the end of the last line
    while at > least:
        first = max(least, at - _BLOCK)
        for found in _backwards(_at(file, first, at)):
            count -= 1
            if count == 0:
                return first + found + 1
        at = first
    return least


def _backwards(block: bytes) -> Iterator[int]:
    at = block.rfind(b"\n")
    while at >= 0:
        yield at
        at = block.rfind(b"\n", 0, at)


def _at(file: BinaryIO, first: int, last: int) -> bytes:
    file.seek(first)
    return file.read(last - first)


def path_of(cluster: Cluster, id: str, stage: str, node: int | None) -> Path:
    if not re.fullmatch(r"[a-z]{1,20}", stage):
        raise Refused(f"{id} has no stage {stage[:40]!r}")
    folder = cluster.jobs / id / "logs"
    files.refresh(folder)
    return folder / (f"{stage}.log" if node is None else f"{stage}.{node}.log")


@contextlib.contextmanager
def open_log(path: Path, name: str) -> Iterator[BinaryIO]:
    """Raises FileNotFoundError: there is none. Refused: it is not a regular file."""
    refused = Refused(f"{name} is not a regular file, and was not opened. The job has replaced it")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:  # a link, or a socket
        raise refused from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused
    with os.fdopen(descriptor, "rb") as file:
        yield file
