"""Logs of a job's stages, in pieces."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import Refused
from ..requests import Cluster, History, JobSettings, Log, LogPiece, ReadLog, Report
from ..spec import Packed
from .answers import own_job, settings
from .log_files import last_lines, open_log, path_of
from .status import JobStatus, last_begun
from .step import node_of


def read_piece(cluster: Cluster, given: ReadLog) -> Log:
    """See `requests.Log`.

    Raises:
        Refused: it is not a regular file.
    """
    status = own_job(cluster, given.id, "read its log")
    stage = given.stage or last_begun(status)
    if status.members and stage == "train":
        return Log(status, stage, members=tuple(_of_members(cluster, status, given)))
    node = None if given.rank is None else node_of(cluster, status, given.rank)
    piece = LogPiece(offset=given.offset)
    with contextlib.suppress(FileNotFoundError):
        path = path_of(cluster, given.id, stage, given.node if node is None else node)
        piece = _piece(path, f"the log of {given.id}'s {stage}", given.offset, given.most, given.tail)
    return Log(status, stage, piece, node=node)


def report(cluster: Cluster, given: Report) -> History:
    """See `requests.History`."""
    status, left = own_job(cluster, given.id, "read its log"), given.most
    names = [] if status.members else [stage.name for stage in status.stages if stage.name != "prepare"]
    logs = {name: LogPiece() for name in names}
    for name in names:
        try:
            logs[name] = _piece(path_of(cluster, given.id, name, None), "", 0, left, None)
            left -= min(left, logs[name].size)
        except FileNotFoundError:  # it has not begun
            continue
        except Refused:
            del logs[name]
    return History(status, settings(cluster, JobSettings(given.id)), logs)


def _of_members(cluster: Cluster, status: JobStatus, given: ReadLog) -> Iterator[LogPiece]:
    """Pieces of the logs of an array's members, in their order. Each has the same share of `most`, and of what others leave."""
    wanted = [m.name for m in status.members if not given.members or m.name in given.members]
    left = given.most
    for at, index in enumerate(wanted):
        begin, most = given.members.get(index, 0), left // (len(wanted) - at)
        with contextlib.suppress(FileNotFoundError, Refused):  # it has not begun, or has replaced it
            piece = _piece(path_of(cluster, f"{status.id}/{index}", "train", None), "", begin, most, given.tail)
            left -= min(most, max(0, piece.size - piece.offset))
            if piece.data or piece.offset < begin:
                yield replace(piece, member=index)


def _piece(path: Path, name: str, offset: int, most: int, tail: int | None) -> LogPiece:
    """Raises FileNotFoundError: there is no log. Refused: it is not a regular file."""
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
