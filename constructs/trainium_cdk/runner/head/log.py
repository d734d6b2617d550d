"""Logs of a job's stages, in pieces. A job can write its own: what is no regular file is not opened."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .. import files
from ..errors import Refused
from ..requests import Cluster, ReadLog
from ..spec import pack, to_json
from .answers import own_job
from .status import JobStatus, last_begun
from .step import node_of

_BLOCK = 1 << 16


def read_piece(cluster: Cluster, given: ReadLog) -> Any:
    """A piece of a log, with the log's size and the job's status just before it was read: if the stage had ended, its log is complete. A piece
    without data is at the log's end, if that is before `offset`.

    Raises:
        Refused: it is no regular file.
    """
    status = own_job(cluster, given.id, "read its log")
    stage = given.stage or last_begun(status)
    answer: dict[str, Any] = {"job": to_json(status), "stage": stage, "offset": given.offset, "size": 0, "data": ""}
    if status.members and stage == "train":
        return {**answer, "members": _of_members(cluster, status, given)}
    node = given.node
    if given.rank is not None:
        node = answer["node"] = node_of(cluster, status, given.rank)
    with contextlib.suppress(FileNotFoundError):
        path = _path(cluster, given.id, stage, node)
        answer.update(_piece(path, f"the log of {given.id}'s {stage}", given.offset, given.most, given.tail))
    return answer


def _of_members(cluster: Cluster, status: JobStatus, given: ReadLog) -> list[Any]:
    """Pieces of the logs of an array's members, in their order. Each has the same share of `most`, and of what others leave."""
    wanted = [m.name for m in status.members if not given.members or m.name in given.members]
    found, left = [], given.most
    for at, index in enumerate(wanted):
        begin, most = given.members.get(index, 0), left // (len(wanted) - at)
        with contextlib.suppress(FileNotFoundError, Refused):  # it has not begun, or has replaced it
            piece = _piece(_path(cluster, f"{status.id}/{index}", "train", None), "", begin, most, given.tail)
            left -= min(most, max(0, piece["size"] - piece["offset"]))
            if piece["data"] or piece["offset"] < begin:
                found.append({"member": index, **piece})
    return found


def _piece(path: Path, name: str, offset: int, most: int, tail: int | None) -> dict[str, Any]:
    """Raises FileNotFoundError: there is no log. Refused: it is no regular file."""
    with _open(path, name) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(offset, 0)
        if tail is not None:
            begin = max(begin, last_lines(file, size, tail))
        data = b""
        if begin < size:  # a file system may not take an offset far behind the end
            file.seek(begin)
            data = file.read(max(0, most))
        return {"offset": begin if data else min(begin, size), "size": size, "data": pack(data)}


def last_lines(file: BinaryIO, size: int, count: int) -> int:
    """Where the last lines of a file begin. A line without an end is one, too."""
    if count <= 0:
        return size
    at = size
    if size and _at(file, size - 1, size) == b"\n":
        at -= 1  # the end of the last line
    while at > 0:
        first = max(0, at - _BLOCK)
        for found in _backwards(_at(file, first, at)):
            count -= 1
            if count == 0:
                return first + found + 1
        at = first
    return 0


def _backwards(block: bytes) -> Iterator[int]:
    at = block.rfind(b"\n")
    while at >= 0:
        yield at
        at = block.rfind(b"\n", 0, at)


def _at(file: BinaryIO, first: int, last: int) -> bytes:
    file.seek(first)
    return file.read(last - first)


def _path(cluster: Cluster, id: str, stage: str, node: int | None) -> Path:
    if not re.fullmatch(r"[a-z]{1,20}", stage):
        raise Refused(f"{id} has no stage {stage[:40]!r}")
    folder = cluster.jobs / id / "logs"
    files.refresh(folder)
    return folder / (f"{stage}.log" if node is None else f"{stage}.{node}.log")


@contextlib.contextmanager
def _open(path: Path, name: str) -> Iterator[BinaryIO]:
    """Raises FileNotFoundError: there is none. Refused: it is no regular file."""
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
