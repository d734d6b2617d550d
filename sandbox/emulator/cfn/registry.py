"""How a CloudFormation type is added to ministack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ministack.services.cloudformation import provisioners

Properties = dict[str, Any]
Made = tuple[str, dict[str, Any]]
"""Physical id (what Ref gives) and attributes (what Fn::GetAtt gives)."""


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
    """Add (or replace) the handlers of one type.

    create: logical id, properties, stack name -> Made. Raise ValueError (or ApiError) to fail the resource.
    delete: physical id, properties. A resource that is already gone is not an error.
    update: for changes to properties outside `replaced_by`; without one such a change fails the update and
        says so, because ministack would otherwise call `create` again.
    replaced_by: properties whose change makes a new resource (the CloudFormation reference's "Update
        requires: Replacement"); the old one is deleted after the update succeeded.
    tags: whether the type has `Tags`, to which CloudFormation adds the stack's own.
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
    """ministack's handlers of a type it has, to be mended in place."""
    found: dict[str, Any] = provisioners._RESOURCE_HANDLERS[type_name]
    return found


def tag_specification(resource_type: str, properties: Properties) -> list[dict[str, Any]]:
    """The template's Tags as EC2's TagSpecification parameter."""
    tags = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in properties.get("Tags") or []]
    return [{"ResourceType": resource_type, "Tag": tags}] if tags else []


def retag(physical_id: str, old: Properties, new: Properties) -> None:
    """Bring the tags of an EC2 resource from `old` to `new`; tags set otherwise stay."""
    provisioners._ec2_apply_tags(physical_id, new, old)
