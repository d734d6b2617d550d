"""Kubernetes objects that leave a stack: what the function of `Custom::TrnOwnedObjects` removes, what stays, and which jobs notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainium_cdk.client.operations.updates.change import Level
from trainium_cdk.client.operations.updates.leaves import RENEWED

TYPE = "Custom::TrnOwnedObjects"
Verdict = tuple[Level, str, str, str, str, str]
"""Level, meaning, advice, property, old and new value: of a `Change`."""
_QUEUES = (
    "they are removed, and their nodes go to the other queues. Jobs that run in them continue, but others may take their nodes back; "
    "without quota they stay until these jobs end. Jobs that wait in them never start"
)
_GROUP_JOBS = (
    "cancel the waiting jobs, or submit them to another queue; jobs on a node group that is removed end with its nodes"
)
_NAMESPACES = (
    "they are removed, unless they have jobs (ended ones too) or volumes of users. Such a namespace stays with all that is in it but its "
    "queues; it is removed within the hour after they are deleted"
)
_RENAMED = (
    "the volume and its claim are named by the file system: there are new ones, and the old ones are removed. A claim that a job uses stays "
    "until the job ends"
)
_RESUBMIT = "submit waiting jobs again after the deployment: they name the old claim"
_FOLDER = "the namespace gets its own folder on EFS, and its jobs do not see the files that are on the file system now; none is deleted"
_MOVE = (
    "when all jobs have ended, move the files with examples/kubernetes/own-folder.yaml, then deploy (docs/guides/change.md), and submit waiting "
    "jobs again: they name the old claim"
)
_GONE = "they are removed; files are not deleted with them. A claim that a job uses stays until the job ends"


def consequences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Verdict]:
    """List the consequences of an update of the list of objects.

    Args:
        new: with marks where a reference will have another value (`leaves.marked`).
    """
    before, after = _names(old.get("Objects") or {}), _names(new.get("Objects") or {})
    left = {kind: [name for name in names if name not in after.get(kind, ())] for kind, names in before.items()}
    came = {kind: [name for name in names if name not in before.get(kind, ())] for kind, names in after.items()}
    if queues := left.pop("ClusterQueue", None):
        left.pop("LocalQueue", None)
        yield "interrupts", _QUEUES, _GROUP_JOBS, "ClusterQueue", ", ".join(queues), ""
    if spaces := left.pop("Namespace", None):
        yield "interrupts", _NAMESPACES, "", "Namespace", ", ".join(spaces), ""
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        if gone := left.pop(kind, None):
            renamed = bool(came.get(kind))
            words = (_RENAMED, _RESUBMIT) if renamed else (_GONE, "")
            if any(name.replace("efs-", "efs-team-", 1) in came.get(kind, ()) for name in gone):
                words = (_FOLDER, _MOVE)
            yield "interrupts", *words, kind, ", ".join(gone), ", ".join(came.get(kind, ()))
            came.pop(kind, None)
    for kind, names in left.items():
        if names:
            yield "safe", "they are removed", "", kind, ", ".join(names), ""
    for kind, names in came.items():
        if names:
            yield "safe", "they are created", "", kind, "", ", ".join(names)
    if old.get("Function") != new.get("Function"):
        yield "safe", "it is changed in place", "", "Function", "", ""


def _names(objects: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the names as readable text, by kind, each namespace in the place of `*` (`eks.owned.names_by_kind`)."""
    spaces = objects.get("*", ())
    found = {kind: [_words(name) for name in names] for kind, names in objects.items() if kind != "*"}
    return {kind: [each for name in names for each in _each(name, spaces)] for kind, names in found.items()}


def _each(name: str, namespaces: Sequence[str]) -> list[str]:
    return [f"{one}{name[1:]}" for one in namespaces] if name.startswith("*") else [name]


def _words(value: Any) -> str:
    """
    >>> _words({"Fn::Join": ["", ["training-efs-", {"Ref": "Efs"}]]})
    'training-efs-(Efs)'
    """
    if not isinstance(value, Mapping):
        return str(value)
    [(function, inner)] = value.items()
    if function == RENEWED:
        return _words(inner).replace("(", "(new ")
    if function == "Fn::Join":
        return str(inner[0]).join(map(_words, inner[1]))
    return f"({inner if isinstance(inner, str) else '.'.join(inner)})"
