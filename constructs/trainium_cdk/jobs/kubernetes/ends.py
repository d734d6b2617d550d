"""How a container of a job's pod has ended: its exit code, and what the runner has told in its termination message. Pure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trainium_cdk.jobs.kubernetes.names import TIMED_OUT
from trainium_cdk.jobs.status import parse_int

_WORDS = 400


def seconds(text: Any) -> int | None:
    """A Kubernetes timestamp in seconds since 1970; None for 1970 itself, which stands for never."""
    try:
        return int(dt.datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()) or None
    except ValueError:
        return None


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


def is_without_program(end: Mapping[str, Any]) -> bool:
    """Whether a container was not started, as its image has no such program."""
    return end.get("exitCode") == 128 and "executable file not found" in str(end.get("message"))


def describe_no_python(image: str) -> str:
    return (
        f"image {image} has no python3 on its PATH, which starts each job. Use one with Python 3.9 or newer, as the examples of trn image "
        "build have"
    )


class Told(NamedTuple):
    """What a container's runner told at its end.

    Attributes:
        code: the exit code of the program itself.
        last: the last line of why it failed.
        node: which failed first, if that is known.
    """

    code: int | None = None
    last: str = ""
    node: int | None = None


def told_by(end: Mapping[str, Any]) -> Told:
    """Whatever runs in a pod may have written it."""
    try:
        found = json.loads(str(end.get("message", "")))
        first = found.get("first") or found
        return Told(parse_int(first.get("code")), cut(str(first.get("last", ""))), parse_int(first.get("node")))
    except (ValueError, AttributeError, RecursionError):
        return Told()


def describe_failure(bad: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # the first failure stopped the others
    first = min(bad, key=lambda t: (not t["full"], seconds(t.get("finishedAt")) or 0, t.get("exitCode") == 143))
    code, node = first.get("exitCode"), first["node"]
    if code == TIMED_OUT:
        return {"state": "TIMEOUT", "reason": "reached its time limit", "exit_code": code}
    if full := first["full"]:
        return {"state": "OUT_OF_MEMORY", "reason": full, "exit_code": code, "failed_node": node}
    if is_without_program(first):
        return {"state": "FAILED", "reason": describe_no_python(first["image"]), "exit_code": code, "failed_node": node}
    told = told_by(first)
    code = told.code or code
    return {
        "state": "FAILED",
        "reason": f"exit code {code}",
        "exit_code": code,
        "failed_node": node if told.node is None else told.node,
    }
