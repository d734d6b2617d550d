"""The end of a container of a job's pod: its exit code, and the failure in the runner's termination message. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainium_cdk.client.jobs.kubernetes.names import FAILED, TIMED_OUT, seconds
from trainium_cdk.runner.records import Failure, safe
from trainium_cdk.runner.spec import SpecError, from_json

_WORDS = 400


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


def is_without_program(end: Mapping[str, Any]) -> bool:
    """Return whether a container was not started because its image has no such program."""
    return end.get("exitCode") == 128 and "executable file not found" in str(end.get("message"))


def describe_no_python(image: str) -> str:
    return (
        f"image {image} has no python3 on its PATH, which starts each job. Use one with Python 3.9 or newer, as the examples of trn image "
        "build have"
    )


def told_by(end: Mapping[str, Any]) -> Failure | None:
    """The failure that a container's runner has told at its end. Whatever runs in a pod may have written it."""
    try:
        found = json.loads(str(end.get("message", "")))
        found = found.get("first") or found  # of an older runner: another node failed first
        found = from_json(Failure, {"node": -1, **found}, strict=False)
    except (ValueError, TypeError, AttributeError, RecursionError, SpecError):
        return None
    return safe(found)


def describe_failure(bad: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # the first failure stopped the others
    first = min(bad, key=lambda t: (not t["full"], seconds(t.get("finishedAt")) or 0, t.get("exitCode") == 143))
    code, node = first.get("exitCode"), first["node"]
    if code == TIMED_OUT:
        return {"state": "TIMEOUT", "reason": "reached its time limit", "exit_code": code, "failure": told_by(first)}
    if full := first["full"]:
        told = told_by(first)
        failure = told if told and told.said.raised else None
        return {"state": "OUT_OF_MEMORY", "reason": full, "exit_code": code, "failed_node": node, "failure": failure}
    if is_without_program(first):
        return {"state": "FAILED", "reason": describe_no_python(first["image"]), "exit_code": code, "failed_node": node}
    failure = told_by(first)
    if failure and failure.node < 0 and failure.code == FAILED:  # it was stopped: no node is at fault
        node = None
    elif failure:
        node = node if failure.node < 0 else failure.node
        failure = replace(failure, node=node)
    code = failure.code if failure and failure.code else code
    return {
        "state": "FAILED",
        "reason": f"exit code {code}",
        "exit_code": code,
        "failed_node": node,
        "failure": failure,
    }
