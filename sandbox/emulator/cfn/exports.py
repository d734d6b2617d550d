"""Refuse to change or remove the value of an export while another stack imports it, as CloudFormation does (user guide, "Get exported outputs")."""

from __future__ import annotations

from typing import Any

from ministack.services.cloudformation import _exports, _stacks, handlers, stacks

_resolve = stacks._resolve_stack_outputs


def _resolve_stack_outputs(*given: Any) -> Any:
    outputs, exports = _resolve(*given)
    name, id = given[-2:]
    for export in [each for each in _exports.values() if each["StackId"] == id]:
        new = exports.get(export["Name"])
        users = [
            other for other, stack in _stacks.items()
            if other != name and "DELETE" not in stack.get("StackStatus", "")
            and export["Name"] in handlers._imported_export_names(stack, other)
        ]  # fmt: skip
        if users and (new is None or new["Value"] != export["Value"]):
            how = "deleted" if new is None else "updated"
            raise ValueError(f"Export {export['Name']} cannot be {how} as it is in use by {', '.join(sorted(users))}")
    return outputs, exports


stacks._resolve_stack_outputs = _resolve_stack_outputs
