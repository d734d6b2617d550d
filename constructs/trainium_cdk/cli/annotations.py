"""What the annotation of a field allows."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from trainium_cdk.text import choices

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def parts_of(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without None."""
    return (part for part in choices(annotation) if part is not NoneType)


def choices_of(field: FieldInfo) -> list[str]:
    """The allowed values of a field, if limited."""
    literals = [part for part in parts_of(field.annotation) if get_origin(part) is Literal]
    return [str(value) for part in literals for value in get_args(part)]
