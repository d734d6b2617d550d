"""Answers of the runner, which come from a machine that jobs run on, or from a pod: each has a size and a depth, or it is refused. Their form is in
`runner.requests`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from trainium_cdk.runner.requests import Error
from trainium_cdk.runner.spec import SpecError, from_json

MOST = 128 * 2**20
"""Characters of an answer: one with 100,000 names of files, or with 16 MiB of a log, is smaller."""
MOST_PACKED = 64 * 2**20
"""The same, as it is sent: packed."""
_VALUES, _DEPTH = 2_000_000, 32
"""Values of an answer, and how deep they are nested."""


@dataclass(frozen=True)
class Document:
    """The output of the runner: an answer as plain data, or an error. `id`: of the job, if the request named it by another text."""

    answer: Any = None
    error: Error | None = None
    id: str = ""


def document(text: str) -> Document:
    """The document of an answer.

    Raises:
        SpecError: it is none.
    """
    found = plain(text)
    made = from_json(Document, found, strict=False)
    if made.error is None and "answer" not in found:
        raise SpecError("it is not an answer")
    return made


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


def _number(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise SpecError(f"{text[:20]} is not a number")
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
