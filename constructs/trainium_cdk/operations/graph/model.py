"""What a picture of a stack shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Area = Literal["public", "private", "storage", "region"]
"""Where a box is: machines in public or private subnets, file systems and ways out in the network, or services of the region."""


@dataclass(frozen=True)
class Box:
    """One part of the architecture.

    Attributes:
        id: its logical id in the template, with a suffix where one resource has several parts.
        lines: details, each short.
    """

    id: str
    area: Area
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """Data from one box to another, or both ways."""

    source: str
    target: str
    label: str


@dataclass(frozen=True)
class Architecture:
    """A stack.

    Attributes:
        network: title of the VPC; empty if the stack neither creates nor names one.
        subnets: title of the subnets of each area.
        others: how many resources of which types are not drawn.
    """

    name: str
    network: str
    subnets: dict[str, str]
    boxes: Sequence[Box]
    flows: Sequence[Flow]
    others: Sequence[tuple[str, int]] = ()
