"""The records of a job's folder: what was submitted, how each stage runs or ended, who failed first.

A job can write all of them. So each is read as if by an enemy: its size is limited, its types are checked, its texts are one printable line.
A damaged one is none. Fields that a newer version has written are left out.
"""

import contextlib
import dataclasses
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar

from . import files, spec
from .readers import Finding, Said

MOST = 64_000
"""Bytes of a record that are read."""
_LONGEST, _SHORT, _LINES = 1000, 300, 30
MEMORY_FULL = "out of memory"
"""`Failure.last` of a program that was killed because the memory of its pod was full."""
_FAILED = ".failed.json"
_LARGEST_FAILURE = 24_000
_LARGEST = 10**12
_NAME = re.compile(r"[a-z]{1,20}")

RUNNING, ENDED = "running", "ended"
CANCELLED, TIMEOUT, LOST = "CANCELLED", "TIMEOUT", "LOST"
"""Why a stage was stopped: the words of `State.why`. LOST: Slurm's controller crashed, and has forgotten it."""

_Moment = Annotated[float, spec.TIME]
TimedFinding = Annotated[Finding, spec.Bound("finding of such a time", lambda finding: spec.TIME.holds(finding.at))]
"""A finding from a file of a job, or from an answer."""
T = TypeVar("T")


@dataclass(frozen=True)
class SubmittedRecord:
    """`submitted.json`, of Slurm: without it there is no job.

    Attributes:
        numbers: of each stage's Slurm job, as sbatch printed it; of an array, the array's. Stages in one allocation have the same one.
        digest: of what was submitted, without the runner's version.
        cluster: `spec.Slurm.cluster`: the numbers mean something only there.
        at: seconds since 1970.
        runner: path of the runner that the job began with.
    """

    numbers: Mapping[str, str]
    digest: str = ""
    cluster: str = ""
    at: _Moment = 0.0
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
    at: _Moment = 0.0
    nodes: str = ""
    why: str = ""
    failed_node: Optional[int] = None

    @property
    def completed(self) -> bool:
        """True if the stage has ended well."""
        return self.state == ENDED and self.code == 0


@dataclass(frozen=True)
class Failure:
    """`state/STAGE.RUN.failed.json`: the first failure of a stage. It ends the other nodes, whose exit codes then mean nothing.

    Attributes:
        node: its number: 0, 1, ...; -1: none is at fault, as the stage was stopped for what is in `last`.
        code: exit code of the program; -N: a signal ended it.
        last: why it failed, in one line. An older runner has recorded nothing else.
        at: when it failed, or printed the first exception: seconds since 1970.
        rank: of the process that failed first; None if that is not known.
        said: what of its output explains that; empty if its program had not begun.
        kills: how many of its processes the kernel killed, because the memory was full.
        stopped: it had not failed, but was stopped from outside, as at its time limit.
    """

    node: int
    code: int
    last: str = ""
    at: _Moment = field(default_factory=time.time)
    rank: Optional[int] = None
    said: Said = field(default_factory=Said)
    kills: int = 0
    stopped: bool = False

    def cut(self, most: int) -> "Failure":
        """The same with fewer and shorter lines, so that its JSON has at most so many bytes: at least 3,000."""
        for longest in (_SHORT, 100, 30):
            said = {one.name: _cut(getattr(self.said, one.name), longest) for one in dataclasses.fields(Said)}
            said["raised"] = said["raised"][:2]
            made = dataclasses.replace(self, last=one_line(self.last)[: 3 * longest], said=Said(**said))
            while made.said.lines and len(json.dumps(dataclasses.asdict(made))) > most:
                lines = made.said.lines  # the last of them is the log's
                fewer = dataclasses.replace(made.said, lines=(*lines[:-2], lines[-1])[: len(lines) - 1])
                made = dataclasses.replace(made, said=fewer)
            if len(json.dumps(dataclasses.asdict(made))) <= most:
                break
        return made

    def counts_before(self, other: "Failure") -> bool:
        """Return whether this is rather the cause: an exception or a kill of a program counts before ends that follow; then the earlier one."""
        return (self._weight, self.at) < (other._weight, other.at)

    @property
    def _weight(self) -> int:
        if self.said.raised or self.kills or (not self.stopped and not self.said.follows):
            return 0
        return 2 if self.stopped else 1


# --- a job's record ---------------------------------------------------------------------------------------------------------------------


def submitted(job: Path) -> Optional[SubmittedRecord]:
    """The record of a job's submission; None if it was not completed, or is damaged."""
    return read(SubmittedRecord, job / "submitted.json")


def is_cancelled(job: Path) -> bool:
    """Return whether a job, or the array of a member, was cancelled."""
    return os.path.lexists(job / "cancelled")


# --- records of a stage -----------------------------------------------------------------------------------------------------------------


def state(job: Path, stage: str, number: Optional[str] = None) -> Optional[State]:
    """Read the state of a stage that runs or has ended; None before it begins, or if it is of another Slurm job than this number's."""
    found = read(State, _path(job, stage, "json"))
    return found if found and found.state in (RUNNING, ENDED) and number in (None, found.number) else None


def current(job: Path, stages: Sequence[str], number: str) -> tuple[str, Optional[State]]:
    """The current one of the stages that a Slurm job carries out, and its record: the first that has not recorded that it completed, else the last
    one. Slurm's row tells of it, and of no other."""
    *before, last = stages
    for name in before:
        found = state(job, name, number)
        if found is None or not found.completed:
            return name, found
    return last, state(job, last, number)


def write_state(job: Path, stage: str, value: State) -> None:
    files.write_json(_path(job, stage, "json"), dataclasses.asdict(value))


def failure(job: Path, stage: str, run: str = "") -> Optional[Failure]:
    """The first failure of a run of a stage, if there was one. Default: of its last run."""
    if run:
        return read(Failure, _path(job, stage, f"{run}{_FAILED}"))
    names = sorted(one for one in _names(job / "state") if one.startswith(f"{stage}.") and one.endswith(_FAILED))
    return read(Failure, job / "state" / names[-1]) if names else None


def fail(job: Path, stage: str, run: str, value: Failure) -> bool:
    """Record a failure, unless there is one that counts before it. Returns whether it is recorded. A full disk is not another failure."""
    path, kept = _path(job, stage, f"{run}{_FAILED}"), dataclasses.asdict(value.cut(_LARGEST_FAILURE))
    with contextlib.suppress(OSError):
        if files.create(path, kept):
            return True
        before = read(Failure, path)
        if before is None or value.counts_before(before):
            files.write_json(path, kept)
            return True
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
            with contextlib.suppress(OSError):  # gone, or a folder that the job made
                (job / "state" / name).unlink()


# --- reading ----------------------------------------------------------------------------------------------------------------------------


def read(kind: type[T], path: Path) -> Optional[T]:
    """A record of one of these classes; None if there is none, or it is damaged."""
    try:
        return safe(spec.from_json(kind, files.read_json(path, MOST), strict=False))
    except (spec.SpecError, RecursionError):
        return None


def safe(record: T) -> Optional[T]:
    """A record whose texts are short, printable lines; None if a number of it is none."""
    values = {one.name: _safe(getattr(record, one.name)) for one in dataclasses.fields(record)}  # type: ignore[arg-type]
    return None if any(value is _BAD for value in values.values()) else type(record)(**values)


_BAD = object()


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, (int, float)):
        return value if math.isfinite(value) and abs(value) < _LARGEST else _BAD
    if isinstance(value, Said):
        parts = [_safe(_cut(getattr(value, one.name), _SHORT)) for one in dataclasses.fields(value)]
        return _BAD if any(one is _BAD for one in parts) else Said(*parts)
    if isinstance(value, tuple):
        return value
    if isinstance(value, Mapping):
        return {one_line(key): one_line(str(one)) for key, one in list(value.items())[:100]}
    return value


def _cut(value: Any, longest: int) -> Any:
    """A text, or a list of texts, as short printable lines."""
    if isinstance(value, tuple):
        return tuple(one_line(one)[:longest] for one in value[:_LINES])
    return one_line(value)[:longest] if isinstance(value, str) else value


def one_line(text: str) -> str:
    """A text as one line without control characters, cut to 1,000 characters."""
    return "".join(c if c.isprintable() else " " for c in text[:_LONGEST])


def span(seconds: float) -> str:
    """A time for people.

    >>> span(3.21), span(95), span(725), span(7300)
    ('3.2 s', '95 s', '12 min', '2 h 1 min')
    """
    if seconds < 10:
        return f"{max(0.0, seconds):.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []


def _path(job: Path, stage: str, rest: str) -> Path:
    if not _NAME.fullmatch(stage):
        raise ValueError(f"{stage!r} is not a stage's name")
    return job / "state" / f"{stage}.{rest}"
