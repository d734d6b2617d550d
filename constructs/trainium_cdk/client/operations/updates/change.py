"""One thing that a deployment would do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["loses", "refused", "replaces", "interrupts", "safe"]
"""loses: data, or a cluster with its jobs, is deleted. refused: the deployment would fail. replaces: deleted and created again,
without stored data. interrupts: kept, but what runs on it is disturbed. safe: no effect on anything."""
LEVELS: tuple[Level, ...] = ("loses", "refused", "replaces", "interrupts", "safe")
"""The worst first."""


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
