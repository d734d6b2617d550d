"""Two differences between ministack and CloudFormation in the handling of a stack's resources.

- When a resource fails to delete, ministack deletes its dependencies anyway: without a custom resource's function the next delete
  cannot succeed. CloudFormation keeps them for the next delete.
- A nested stack's resource that an update does not change loses its attributes, so that references to them fail.
"""

from __future__ import annotations

from typing import Any

from ministack.services.cloudformation import _stacks, engine, provisioners, stacks

_update, _delete = provisioners._update_resource, provisioners._delete_resource


def _update_resource(
    type_name: str,
    physical_id: str,
    old: dict[str, Any],
    new: dict[str, Any],
    stack_name: str,
    logical_id: str | None = None,
    old_attrs: dict[str, Any] | None = None,
) -> Any:
    if old == new and not old_attrs:
        made = (_stacks.get(stack_name) or {}).get("_resources", {})
        old_attrs = made.get(logical_id, {}).get("Attributes")
    return _update(type_name, physical_id, old, new, stack_name, logical_id, old_attrs)


def _delete_resource(
    type_name: str,
    physical_id: str,
    properties: dict[str, Any],
    stack_name: str | None = None,
    logical_id: str | None = None,
) -> Any:
    stack = _stacks.get(stack_name) or {}
    if stack.get("StackStatus") == "DELETE_IN_PROGRESS" and logical_id:
        resources, definitions = stack.get("_resources", {}), stack.get("_template", {}).get("Resources", {})
        failed = [
            key
            for key, resource in resources.items()
            if resource.get("ResourceStatus") == "DELETE_FAILED"
            and key != logical_id
            and logical_id in engine._extract_deps(definitions.get(key, {}), set(resources))
        ]
        if failed:
            raise ValueError(f"kept for the next delete: {', '.join(failed)} depends on it and could not be deleted")
    return _delete(type_name, physical_id, properties, stack_name, logical_id)


for _module in (provisioners, stacks):  # stacks imports the names, so change both modules
    _module._update_resource = _update_resource
    _module._delete_resource = _delete_resource
