"""Logs of a job's stages, in pieces."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from ..errors import Refused
from ..requests import Cluster, ReadLog, Report, Settings
from ..spec import pack, to_json
from .answers import own_job, settings
from .log_files import last_lines, open_log, path_of
from .status import JobStatus, last_begun
from .step import node_of


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
        path = path_of(cluster, given.id, stage, node)
        answer.update(_piece(path, f"the log of {given.id}'s {stage}", given.offset, given.most, given.tail))
    return answer


def report(cluster: Cluster, given: Report) -> Any:
    """See `requests.Report`. What is no regular file is left out."""
    status, left = own_job(cluster, given.id, "read its log"), given.most
    names = [] if status.members else [stage.name for stage in status.stages if stage.name != "prepare"]
    logs: dict[str, Any] = {name: {"size": 0, "data": ""} for name in names}
    for name in names:
        try:
            logs[name] = _piece(path_of(cluster, given.id, name, None), "", 0, left, None)
            left -= min(left, logs[name]["size"])
        except FileNotFoundError:  # it has not begun
            continue
        except Refused:
            del logs[name]
    return {"job": to_json(status), **settings(cluster, Settings(given.id)), "logs": logs}


def _of_members(cluster: Cluster, status: JobStatus, given: ReadLog) -> list[Any]:
    """Pieces of the logs of an array's members, in their order. Each has the same share of `most`, and of what others leave."""
    wanted = [m.name for m in status.members if not given.members or m.name in given.members]
    found, left = [], given.most
    for at, index in enumerate(wanted):
        begin, most = given.members.get(index, 0), left // (len(wanted) - at)
        with contextlib.suppress(FileNotFoundError, Refused):  # it has not begun, or has replaced it
            piece = _piece(path_of(cluster, f"{status.id}/{index}", "train", None), "", begin, most, given.tail)
            left -= min(most, max(0, piece["size"] - piece["offset"]))
            if piece["data"] or piece["offset"] < begin:
                found.append({"member": index, **piece})
    return found


def _piece(path: Path, name: str, offset: int, most: int, tail: int | None) -> dict[str, Any]:
    """Raises FileNotFoundError: there is no log. Refused: it is no regular file."""
    with open_log(path, name) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(offset, 0)
        if tail is not None:
            begin = max(begin, last_lines(file, size, tail))
        data = b""
        if begin < size:  # a file system may not take an offset far behind the end
            file.seek(begin)
            data = file.read(max(0, most))
        return {"offset": begin if data else min(begin, size), "size": size, "data": pack(data)}
