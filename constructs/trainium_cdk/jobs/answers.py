"""Answers of the runner, which come from a machine that jobs run on, or from a pod: each has a size, a depth and a form, or it is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.status import Foreign, JobStatus, Node
from trainium_cdk.runner import requests
from trainium_cdk.runner.spec import SpecError, from_json

MOST = 128 * 2**20
"""Characters of an answer: one with 100,000 names of files, or with 16 MiB of a log, is smaller."""
MOST_PACKED = 64 * 2**20
"""The same, as it is sent: packed."""
_VALUES, _DEPTH, _WORDS = 2_000_000, 32, 10_000
"""Values of an answer, how deep they are nested, and characters of an error."""
_YEAR_9999 = 253_402_300_799


def document(text: str) -> dict[str, Any]:
    """The document of an answer: `{"answer": ...}` or `{"error": {"kind": ..., "message": ...}}`.

    Raises:
        SpecError: it is none.
    """
    found = plain(text)
    if not isinstance(found, dict) or not isinstance(found.get("id", ""), str):
        raise SpecError("it is no answer")
    if "answer" not in found:
        error = from_json(_Error, found.get("error"), strict=False)
        if not (error.kind and error.message):
            raise SpecError("it is an error without a message")
    return found


def plain(text: str) -> Any:
    """The value of a JSON text that a job, or another user, may have written.

    Raises:
        SpecError: it is none, or is larger, deeper or has a larger number than an answer can have.
    """
    if len(text) > MOST or sum(map(text.count, ",[{")) > _VALUES:
        raise SpecError(f"it is larger than an answer can be: {len(text):,} characters")
    try:
        return _plain(json.loads(text, parse_constant=_number, parse_float=_number))
    except (ValueError, RecursionError) as e:
        raise e if isinstance(e, SpecError) else SpecError("it is no JSON") from None


def settings_in(record: str) -> dict[str, Any]:
    """The settings in a job's record, which may have been edited: empty if it is damaged."""
    try:
        found = plain(record)
    except SpecError:
        return {}
    job = found.get("job") if isinstance(found, dict) else None
    return job if isinstance(job, dict) else {}


def checked(asked: Any, answer: Any) -> Any:
    """An answer that fits what was asked.

    Raises:
        TransportError: it does not.
    """
    try:
        found: Any = from_json(_FORMS[type(asked)], answer, strict=False) if type(asked) in _FORMS else None
        wanted = _wanted(asked)
        if wanted is not None and len(found.there if isinstance(found, _There) else found) != wanted:
            raise SpecError(f"it is not about {wanted} files or jobs")
        if isinstance(asked, requests.RunOnNodes) and not all(re.fullmatch("[0-9]{1,6}", one) for one in found):
            raise SpecError("it is about what is no node")
    except SpecError as e:
        raise TransportError(f"the runner's answer cannot be read: {e}", again=False) from None
    return answer


def _wanted(asked: Any) -> int | None:
    """How many results the answer has; None if that is open."""
    if isinstance(asked, requests.FindFiles):
        return 1 if asked.name else len(asked.names)
    if isinstance(asked, requests.GiveFiles):
        return len(asked.files)
    return len(asked.jobs) if isinstance(asked, requests.SubmitJobs) else None


def _number(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise SpecError(f"{text[:20]} is no number")
    return found


def _plain(value: Any, depth: int = 0) -> Any:
    """A value without half characters, which no terminal and no file takes."""
    if depth > _DEPTH:
        raise SpecError(f"it is nested more than {_DEPTH} deep")
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, int) and abs(value) >= 2**63:
        raise SpecError("a number is too large")
    return value


def _require(valid: bool, problem: str) -> None:
    if not valid:
        raise SpecError(problem)


@dataclass(frozen=True)
class _Error:
    kind: str
    message: str
    similar: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(len(self.message) <= _WORDS, "the message of an error is too long")


def _check_job(job: JobStatus) -> None:
    times: list[float | None] = [
        job.submitted,
        *(time for one in (*job.stages, *job.members) for time in (one.started, one.ended)),
    ]
    times += [finding.at for one in (*job.stages, *job.members) for finding in one.findings]
    _require(bool(job.stages), f"job {job.id[:60]!r} has no stages")
    _require(all(time is None or 0 <= time <= _YEAR_9999 for time in times), f"a time of job {job.id[:60]!r} is none")
    _require(job.nodes >= 0, f"job {job.id[:60]!r} has {job.nodes} nodes")


@dataclass(frozen=True)
class _Job:
    job: JobStatus

    def __post_init__(self) -> None:
        _check_job(self.job)


@dataclass(frozen=True)
class _Jobs:
    jobs: tuple[JobStatus, ...]

    def __post_init__(self) -> None:
        for job in self.jobs:
            _check_job(job)


@dataclass(frozen=True)
class _Others:
    others: tuple[Foreign, ...]

    def __post_init__(self) -> None:
        times = [time for one in self.others for time in (one.submitted, one.started)]
        _require(all(time is None or 0 <= time <= _YEAR_9999 for time in times), "a time is none")


@dataclass(frozen=True)
class _Nodes:
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        for one in self.nodes:
            _require(bool(re.fullmatch(r"[A-Za-z0-9][\w.-]{0,252}", one.name)), f"{one.name[:60]!r} is no node")
            _require(one.booted is None or 0 <= one.booted <= _YEAR_9999, f"node {one.name} has booted at no time")


@dataclass(frozen=True)
class _Piece:
    size: int
    data: str
    offset: int = 0
    member: str = ""

    def __post_init__(self) -> None:
        _require(self.size >= 0 and self.offset >= 0, "a log has a negative size")


@dataclass(frozen=True)
class _Log:
    job: JobStatus
    stage: str
    size: int
    data: str
    offset: int
    members: tuple[_Piece, ...] = ()
    node: int | None = None

    def __post_init__(self) -> None:
        _check_job(self.job)
        _require(self.size >= 0 and self.offset >= 0, "a log has a negative size")


@dataclass(frozen=True)
class _Settings:
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class _Report(_Job, _Settings):
    logs: Mapping[str, _Piece]


@dataclass(frozen=True)
class _Outcome:
    error: _Error | None = None
    stages: Mapping[str, str] | None = None
    existing: bool | None = None
    resubmitted: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        known = None not in (self.stages, self.existing, self.resubmitted)
        _require(self.error is not None or known, "a job has no outcome")


@dataclass(frozen=True)
class _OfRank:
    node: int


@dataclass(frozen=True)
class _Board:
    number: int
    port: int

    def __post_init__(self) -> None:
        _require(self.number > 0 and 0 < self.port < 65536, f"there is no port {self.port}")


@dataclass(frozen=True)
class _Relay:
    address: str
    port: int
    offer: str
    node: int

    def __post_init__(self) -> None:
        _require(bool(re.fullmatch(r"[0-9A-Za-z][\w.:-]{0,252}", self.address)), f"{self.address[:60]!r} is no address")
        _require(0 < self.port < 65536, f"there is no port {self.port}")


_Entry = tuple[str, int, int, int, str]


@dataclass(frozen=True)
class _Listed:
    folder: bool
    entries: tuple[_Entry, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _There:
    into: bool
    there: tuple[_Entry | None, ...]
    free: int


@dataclass(frozen=True)
class _Given:
    sha256: str
    etags: tuple[str, ...]

    def __post_init__(self) -> None:
        _require(bool(re.fullmatch(r"[0-9a-f]{64}", self.sha256)), "a file has no SHA-256")


_FORMS: Mapping[type, Any] = {
    requests.ListJobs: _Jobs,
    requests.Status: _Job,
    requests.ReadLog: _Log,
    requests.Report: _Report,
    requests.SubmitJobs: tuple[_Outcome, ...],
    requests.Cancel: _Job,
    requests.Settings: _Settings,
    requests.Active: _Jobs,
    requests.Others: _Others,
    requests.ListNodes: _Nodes,
    requests.StartBoard: _Board,
    requests.StartRelay: _Relay,
    requests.NodeOfRank: _OfRank,
    requests.WordsOnNode: tuple[str, ...],
    requests.RunOnNodes: Mapping[str, str],
    requests.ListFiles: _Listed,
    requests.FindFiles: _There,
    requests.GiveFiles: tuple[_Given, ...],
}
"""The form of each answer. Nobody reads those of the others."""
