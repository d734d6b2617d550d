"""Adds CloudFormation types to ministack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ministack.services.cloudformation import provisioners

Properties = dict[str, Any]
Made = tuple[str, dict[str, Any]]
"""Physical id (returned by Ref) and attributes (returned by Fn::GetAtt)."""


class Update(Protocol):
    """An in-place update: physical id, old and new properties -> physical id and attributes."""

    def __call__(self, physical_id: str, old: Properties, new: Properties, /) -> Made: ...


def resource(
    type_name: str,
    *,
    create: Callable[[str, Properties, str], Made],
    delete: Callable[[str, Properties], None],
    update: Update | None = None,
    replaced_by: Iterable[str] = (),
    tags: bool = True,
) -> None:
    """Add or replace the handlers of a type.

    create: logical id, properties, stack name -> Made. Raise ValueError (or ApiError) to fail the resource.
    delete: physical id, properties. A resource that is already deleted is not an error.
    update: for changes in place; without it such a change fails the update, because ministack would call `create` again.
        Which change creates a new resource is in CloudFormation's schemas (`sandbox.replacing`).
    replaced_by: further properties, which on AWS replace the resource under some conditions, and here always.
    tags: whether the type has `Tags`, to which CloudFormation adds the stack's tags.
    """

    def in_place(physical_id: str, old: Properties, new: Properties, _stack: str) -> Made:
        if update is None:
            changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
            raise ValueError(f"the sandbox cannot change {', '.join(changed)} of {type_name} in place")
        return update(physical_id, old, new)

    provisioners._RESOURCE_HANDLERS[type_name] = {"create": create, "update": in_place, "delete": delete}
    provisioners._REPLACING_PROPERTIES[type_name] = frozenset(replaced_by)
    if tags:
        provisioners._STACK_TAG_PROPERTY[type_name] = ("Tags", "list")


def handlers(type_name: str) -> dict[str, Any]:
    """ministack's handlers of one of its types, for patching."""
    found: dict[str, Any] = provisioners._RESOURCE_HANDLERS[type_name]
    return found


def camel(value: Any) -> Any:
    """CloudFormation's property names as the API's: PolicyArn becomes policyArn, at every depth."""
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: camel(item) for name, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value


def tag_specification(resource_type: str, properties: Properties) -> list[dict[str, Any]]:
    """The template's Tags in the form of EC2's TagSpecification parameter."""
    tags = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in properties.get("Tags") or []]
    return [{"ResourceType": resource_type, "Tag": tags}] if tags else []


def retag(physical_id: str, old: Properties, new: Properties) -> None:
    """Update the tags of an EC2 resource from `old` to `new`; other tags are kept."""
    provisioners._ec2_apply_tags(physical_id, new, old)
