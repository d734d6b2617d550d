"""Properties as a flat map, so that two of them can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

RENEWED = "Fn::Renewed"
"""Marks a reference whose value will change."""
_IN_TEXT = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.([A-Za-z0-9.]+))?\}")


def intrinsic(value: Any) -> bool:
    """Return whether a value is one of CloudFormation's functions, whose value is not known yet."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)).startswith(("Ref", "Fn::"))


def leaves(properties: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Path -> value, for everything but mappings and lists; list indices are steps of the path."""
    return dict(_walk(properties, ()))


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value and not intrinsic(value):
        for key, inner in value.items():
            yield from _walk(inner, (*path, str(key)))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from _walk(inner, (*path, str(i)))
    else:
        yield path, value


def text(value: Any) -> Any:
    """A value as CloudFormation sees it: all scalars are text."""
    if isinstance(value, Mapping):
        return {key: text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [text(inner) for inner in value]
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None else str(value)


def marked(value: Any, renewed: set[tuple[str, str]]) -> Any:
    """The value with each function that refers to something in `renewed` wrapped in `RENEWED`, so that it differs from before."""
    if intrinsic(value):
        return (
            {RENEWED: value} if any(ref in renewed or (ref[0], "") in renewed for ref in references(value)) else value
        )
    if isinstance(value, Mapping):
        return {key: marked(inner, renewed) for key, inner in value.items()}
    if isinstance(value, list):
        return [marked(inner, renewed) for inner in value]
    return value


def references(value: Any) -> Iterator[tuple[str, str]]:
    """(logical id, attribute) of everything a value refers to; attribute "Ref" for the resource's own id."""
    if isinstance(value, list):
        for inner in value:
            yield from references(inner)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if key == "Ref" and isinstance(inner, str):
            yield inner, "Ref"
        elif key == "Fn::GetAtt":
            parts = inner.split(".", 1) if isinstance(inner, str) else inner
            yield str(parts[0]), str(parts[1])
        elif key == "Fn::Sub":
            words, names = (inner, {}) if isinstance(inner, str) else inner
            yield from ((m[1], m[2] or "Ref") for m in _IN_TEXT.finditer(words) if m[1] not in names)
            yield from references(list(names.values()))
        else:
            yield from references(inner)
