"""Failures on request, for tests of rollback and clean-up.

The file in SANDBOX_FAULTS has a JSON list of
`{"type": ..., "logical"?: ..., "phase": "create" | "update" | "delete", "reason"?: ..., "times"?: n}`; it is read
for each resource, so a test can change it while the emulator runs. `logical` matches a part of the
logical id. `times` limits how often the failure happens.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from ministack.services.cloudformation import provisioners, stacks

_happened: Counter[str] = Counter()


def check(type_name: str, logical_id: str | None, phase: str) -> None:
    """Raise ValueError with the given reason if a fault is set for this resource and phase."""
    path = Path(os.environ.get("SANDBOX_FAULTS", ""))
    if not path.is_file():
        return
    for fault in json.loads(path.read_text()):
        if fault["type"] != type_name or fault.get("phase", "create") != phase:
            continue
        if fault.get("logical", "") not in (logical_id or ""):
            continue
        key = json.dumps(fault, sort_keys=True)
        if "times" in fault and _happened[key] >= int(fault["times"]):
            continue
        _happened[key] += 1
        raise ValueError(fault.get("reason", f"{phase} of {type_name} failed (injected)"))


def install() -> None:
    """Wrap ministack's three entry points, which all types use, including custom resources."""
    provision, update, delete = (
        provisioners._provision_resource,
        provisioners._update_resource,
        provisioners._delete_resource,
    )

    def provision_resource(type_name: str, logical_id: str, *rest: Any) -> Any:
        check(type_name, logical_id, "create")
        return provision(type_name, logical_id, *rest)

    def update_resource(
        type_name: str,
        physical_id: str,
        old: dict[str, Any],
        new: dict[str, Any],
        stack_name: str,
        logical_id: str | None = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        if old != new:
            check(type_name, logical_id, "update")
        return update(type_name, physical_id, old, new, stack_name, logical_id, *rest, **more)

    def delete_resource(
        type_name: str,
        physical_id: str,
        properties: dict[str, Any],
        stack_name: str | None = None,
        logical_id: str | None = None,
    ) -> Any:
        check(type_name, logical_id, "delete")
        return delete(type_name, physical_id, properties, stack_name, logical_id)

    for module in (provisioners, stacks):  # stacks imports the names, so change both modules
        module._provision_resource = provision_resource
        module._update_resource = update_resource
        module._delete_resource = delete_resource
