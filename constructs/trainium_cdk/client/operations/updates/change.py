"""The parts of a comparison: one thing that a deployment would do; and properties as a flat map, so that two of them can be compared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["loses", "refused", "replaces", "interrupts", "safe"]
"""loses: data, or a cluster with its jobs, is deleted. refused: the deployment would fail. replaces: deleted and created again,
without stored data. interrupts: kept, but what runs on it is disturbed. safe: no effect on anything."""
LEVELS: tuple[Level, ...] = ("loses", "refused", "replaces", "interrupts", "safe")
"""The worst first."""
RENEWED = "Fn::Renewed"
"""Marks a reference whose value will change."""
_IN_TEXT = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.([A-Za-z0-9.]+))?\}")


@dataclass(frozen=True)
class Change:
    """One change, and what it means.

    Attributes:
        resource: logical id.
        type: CloudFormation type.
        name: the resource's path in the construct tree, for example `Storage/Fsx/Resource`; its logical id if unknown.
        property: dotted path of the change; empty if the whole resource is created or deleted.
        old, new: its values as text; empty for none.
        meaning: what happens.
        advice: what to do; empty if nothing.
    """

    level: Level
    resource: str
    type: str
    name: str
    property: str
    old: str
    new: str
    meaning: str
    advice: str = ""

    def __str__(self) -> str:
        values = f": {self.old or 'none'} -> {self.new or 'none'}" if self.old or self.new else ""
        return f"{self.level}: {where(self)} ({self.type}){values}: {self.meaning}" + (
            f". {self.advice[:1].upper()}{self.advice[1:]}" if self.advice else ""
        )


def where(change: Change) -> str:
    """The resource and its changed property."""
    return f"{change.name} {change.property}".strip()


def dangerous(changes: Iterable[Change], allowed: Collection[str] = ()) -> list[Change]:
    """The changes that need a decision before a deployment.

    allowed: names or logical ids of resources that may be lost.
    """
    return [c for c in changes if c.level in ("loses", "refused") and not {c.name, c.resource} & set(allowed)]


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
