"""What the annotation of a field allows."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def parts_of(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without None, Annotated and unions."""
    if get_origin(annotation) is Annotated:
        yield from parts_of(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from parts_of(part)
    elif annotation is not NoneType:
        yield annotation


def choices_of(field: FieldInfo) -> list[str]:
    """The allowed values of a field, if limited."""
    literals = [part for part in parts_of(field.annotation) if get_origin(part) is Literal]
    return [str(value) for part in literals for value in get_args(part)]
