"""Merging what a user writes over what we render."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADDED = frozenset({"AdditionalIamPolicies", "AdditionalSecurityGroups", "CustomSlurmSettings"})
"""Keys of lists to which items are added."""


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """`theirs` over `ours`, key by key and all the way down; neither is changed.

    A list whose items have a `Name` (queues, compute resources, pools, file systems) is merged item by item by that name, and
    new names are added at its end. Policies, security groups and lines of slurm.conf are added to ours, without which the nodes do not
    start (`ADDED`). Any other list or value is replaced. A null removes the key.
    """
    found = dict(ours)
    for key, value in theirs.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _added(found.get(key), value) if key in ADDED else _value(found.get(key), value)
    return found


def _added(ours: Any, theirs: Any) -> Any:
    if not (isinstance(ours, list | tuple) and isinstance(theirs, list | tuple)):
        return _value(ours, theirs)
    return [*ours, *(item for item in theirs if item not in ours)]


def _value(ours: Any, theirs: Any) -> Any:
    if isinstance(theirs, Mapping):
        return merged(ours if isinstance(ours, Mapping) else {}, theirs)
    if isinstance(theirs, list | tuple):
        return _named_items(ours, theirs) if _all_named(theirs) and _all_named(ours) else list(theirs)
    return theirs


def _all_named(items: Any) -> bool:
    return (
        isinstance(items, list | tuple) and bool(items) and all(isinstance(i, Mapping) and "Name" in i for i in items)
    )


def _named_items(ours: Any, theirs: Any) -> list[dict[str, Any]]:
    found = {item["Name"]: dict(item) for item in ours}
    for item in theirs:
        found[item["Name"]] = merged(found.get(item["Name"], {}), item)
    return list(found.values())
