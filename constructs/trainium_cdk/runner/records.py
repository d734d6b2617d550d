"""The records of a job's folder: what was submitted, how each stage runs or ended, who failed first.

A job can write all of them. So each is read as if by an enemy: its size is limited, its types are checked, its texts are one printable line.
A damaged one is none. Fields that a newer version has written are left out.
"""

import contextlib
import dataclasses
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, TypeVar

from . import files, spec

MOST = 64_000
"""Bytes of a record that are read."""
_LONGEST = 1000
_LARGEST = 10**12
_NAME = re.compile(r"[a-z]{1,20}")

RUNNING, ENDED = "running", "ended"
CANCELLED, TIMEOUT, LOST = "CANCELLED", "TIMEOUT", "LOST"
"""Why a stage was stopped: the words of `State.why`. LOST: Slurm's controller crashed, and has forgotten it."""

T = TypeVar("T")


@dataclass(frozen=True)
class Submitted:
    """`submitted.json`, of Slurm: without it there is no job.

    Attributes:
        numbers: of each stage's Slurm job, as sbatch printed it; of an array, the array's.
        digest: of what was submitted, without the runner's version.
        cluster: `spec.Slurm.cluster`: the numbers mean something only there.
        at: seconds since 1970.
        runner: path of the runner that the job began with.
    """

    numbers: Mapping[str, str]
    digest: str = ""
    cluster: str = ""
    at: float = 0.0
    runner: str = ""


@dataclass(frozen=True)
class State:
    """`state/STAGE.json`: how a stage runs, or ended.

    Attributes:
        state: running or ended.
        number: of its Slurm job; of a member of an array, the array's.
        attempt: 0, 1, ...: how often Slurm has started it again.
        code: exit code; of the program that failed first, if one did.
        at: when it began or ended, in seconds since 1970.
        nodes: Slurm's list of its nodes.
        why: CANCELLED, TIMEOUT or LOST if it was stopped; else empty.
        failed_node: the number of the node that failed first.
    """

    state: str
    number: str
    attempt: int = 0
    code: Optional[int] = None
    at: float = 0.0
    nodes: str = ""
    why: str = ""
    failed_node: Optional[int] = None


@dataclass(frozen=True)
class Failure:
    """`state/STAGE.RUN.failed.json`: the first failure of a stage. It ends the other nodes, whose exit codes then mean nothing.

    Attributes:
        node: its number: 0, 1, ...
        code: exit code of the program; -N: a signal ended it.
        last: the line of its last exception, or the last one that it has printed; or why it did not start.
        at: seconds since 1970.
    """

    node: int
    code: int
    last: str = ""
    at: float = field(default_factory=time.time)


# --- a job's record ---------------------------------------------------------------------------------------------------------------------


def submitted(job: Path) -> Optional[Submitted]:
    """The record of a job's submission; None if it was not completed, or is damaged."""
    return read(Submitted, job / "submitted.json")


def is_cancelled(job: Path) -> bool:
    """Whether a job, or the array of a member, was cancelled."""
    return os.path.lexists(job / "cancelled")


# --- records of a stage -----------------------------------------------------------------------------------------------------------------


def state(job: Path, stage: str) -> Optional[State]:
    """How a stage runs, or ended; None before it begins."""
    found = read(State, _path(job, stage, "json"))
    return found if found and found.state in (RUNNING, ENDED) else None


def write_state(job: Path, stage: str, value: State) -> None:
    files.write_json(_path(job, stage, "json"), dataclasses.asdict(value))


def failure(job: Path, stage: str, run: str) -> Optional[Failure]:
    """The first failure of a run of a stage, if there was one."""
    return read(Failure, _path(job, stage, f"{run}.failed.json"))


def fail(job: Path, stage: str, run: str, value: Failure) -> bool:
    """Record a failure, unless there is an earlier one. Returns whether it was the first. A full disk is no further failure."""
    with contextlib.suppress(OSError):
        kept = dataclasses.replace(value, last=one_line(value.last))
        return files.create(_path(job, stage, f"{run}.failed.json"), dataclasses.asdict(kept))
    return False


def mark(job: Path, stage: str, run: str, what: str, task: int = 0) -> None:
    """Mark a task of a run of a stage: `begun`, `done`, or `uncompiled` (graphs have failed to compile there).

    Its name has all that it says: names are seen over NFS as soon as a folder is listed, while a file's content may be of before.
    """
    _path(job, stage, f"{run}.{task}.{what}").touch()


def unmark(job: Path, stage: str, run: str, what: str, task: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        _path(job, stage, f"{run}.{task}.{what}").unlink()


def marked(job: Path, stage: str, run: str, what: str) -> list[int]:
    """The tasks of a run of a stage that have this mark, in order."""
    pattern = re.compile(rf"{re.escape(f'{stage}.{run}.')}(\d{{1,9}})\.{what}")
    return sorted(int(found[1]) for found in map(pattern.fullmatch, _names(job / "state")) if found)


def forget(job: Path, stage: str) -> None:
    """Remove the marks and failures of all earlier runs of a stage."""
    for name in _names(job / "state"):
        if name.startswith(f"{stage}.") and name != f"{stage}.json":
            with contextlib.suppress(FileNotFoundError):
                (job / "state" / name).unlink()


# --- reading ----------------------------------------------------------------------------------------------------------------------------


def read(kind: type[T], path: Path) -> Optional[T]:
    """A record of one of these classes; None if there is none, or it is damaged."""
    try:
        found = spec.from_json(kind, files.read_json(path, MOST), strict=False)
    except (spec.SpecError, RecursionError):
        return None
    values = {one.name: _safe(getattr(found, one.name)) for one in dataclasses.fields(found)}  # type: ignore[arg-type]
    return None if any(value is _BAD for value in values.values()) else kind(**values)


_BAD = object()


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, (int, float)):
        return value if math.isfinite(value) and abs(value) < _LARGEST else _BAD
    if isinstance(value, Mapping):
        return {one_line(key): one_line(str(one)) for key, one in list(value.items())[:100]}
    return value


def one_line(text: str) -> str:
    """A text as one line without control characters, cut to 1,000 characters."""
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST])


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []


def _path(job: Path, stage: str, rest: str) -> Path:
    if not _NAME.fullmatch(stage):
        raise ValueError(f"{stage!r} is no stage's name")
    return job / "state" / f"{stage}.{rest}"
