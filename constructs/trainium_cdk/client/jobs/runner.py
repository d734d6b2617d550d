"""The runner as its client sees it. It travels to a cluster as one file: a ZIP archive of its modules, which Python starts. Its answers come from a machine
that jobs run on, or from a pod: each has a size and a depth, or it is refused. Their form is in `runner.requests`."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from trainium_cdk.runner.requests import Error
from trainium_cdk.runner.spec import SpecError, from_json

_ROOM = "runner"
_START = "from runner.__main__ import main\n\nmain()\n"
_DATE = (1980, 1, 1, 0, 0, 0)
MOST = 128 * 2**20
"""Characters of an answer: one with 100,000 names of files, or with 16 MiB of a log, is smaller."""
MOST_PACKED = 64 * 2**20
"""The same, as it is sent: packed."""
_VALUES, _DEPTH = 2_000_000, 32
"""Values of an answer, and how deep they are nested."""


class Pyz(NamedTuple):
    """The file. `name`: the SHA-256 of its content, which distinguishes versions."""

    content: bytes
    name: str


@cache
def pyz() -> Pyz:
    """The runner of this version: the same bytes each time, with the same zlib."""
    made = io.BytesIO()
    room = resources.files("trainium_cdk") / _ROOM
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), _START)
        for path, content in sorted(_modules(room, _ROOM)):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=1)  # a tenth larger than with 9, in half the time
    content = made.getvalue()
    return Pyz(content, hashlib.sha256(content).hexdigest())


def _modules(folder: resources.abc.Traversable, path: str) -> list[tuple[str, bytes]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _modules(one, f"{path}/{one.name}")
        elif one.name.endswith(".py"):
            found.append((f"{path}/{one.name}", one.read_bytes()))
    return found


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
