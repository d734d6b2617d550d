"""One thing that a deployment would do."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["loses", "refused", "replaces", "interrupts", "safe"]
"""loses: data, or a cluster with its jobs, goes. refused: the deployment would fail. replaces: made anew, and nothing was stored
in it. interrupts: it stays, and what runs on it is disturbed. safe: nothing notices."""
LEVELS: tuple[Level, ...] = ("loses", "refused", "replaces", "interrupts", "safe")
"""The worst first."""


@dataclass(frozen=True)
class Change:
    """One change, and what it means.

    Attributes:
        resource: logical id.
        type: CloudFormation type.
        name: where the resource is in the construct tree, as `Storage/Fsx/Resource`; the logical id where that is not known.
        property: dotted path of what changes; empty where the whole resource comes or goes.
        old, new: its values as text; empty for none.
        meaning: what happens.
        advice: what to do; empty where there is nothing to do.
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
    """The resource and what changes of it."""
    return f"{change.name} {change.property}".strip()


def dangerous(changes: Iterable[Change], allowed: Collection[str] = ()) -> list[Change]:
    """The changes for which a deployment should not go ahead unasked.

    allowed: names or logical ids of resources that may go.
    """
    return [c for c in changes if c.level in ("loses", "refused") and not {c.name, c.resource} & set(allowed)]
