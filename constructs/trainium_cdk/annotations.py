"""The types that an annotation allows."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin


def choices(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without Annotated and unions; the type of None is one.

    >>> list(choices(Annotated[int, "GiB"] | None))
    [<class 'int'>, <class 'NoneType'>]
    """
    if get_origin(annotation) in (Union, UnionType):
        for choice in get_args(annotation):
            yield from choices(choice)
    elif get_origin(annotation) is Annotated:
        yield from choices(get_args(annotation)[0])
    else:
        yield type(None) if annotation is None else annotation
