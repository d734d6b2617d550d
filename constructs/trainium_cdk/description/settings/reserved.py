"""Reserved capacity and placement groups that exist: how they are named."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from trainium_cdk.description.settings.base import MaybeToken, on_or_off
from trainium_cdk.problems import wrong
from trainium_cdk.text import Text


def _group_or_choice(value: str) -> str:
    if value not in ("auto", "on", "off") and value.lower() in _NO_GROUPS:
        raise wrong("not the name of a placement group", "write auto, on or off, or the name of an existing group")
    return value


def is_group(reservation: str | None) -> bool:
    """Return whether a reservation is the ARN of a resource group of capacity reservations."""
    return reservation is not None and ":resource-groups:" in reservation


def group_region(reservation: str | None) -> str | None:
    """The region in the ARN of a resource group of capacity reservations; None for anything else."""
    return reservation.split(":")[3] if reservation is not None and is_group(reservation) else None


_NO_GROUPS = frozenset({"auto", "on", "off", "yes", "no", "true", "false", "none", "null", "enabled", "disabled"})
PLACEMENT_GROUP_ID = re.compile(r"pg-[0-9a-f]{8,17}")
PlacementGroup = Annotated[
    str,
    Text(
        r"^[!-~]([ -~]{0,253}[!-~])?$",
        "auto, on or off, or the name or the ID of a placement group (at most 255 ASCII characters)",
        "my-group",
    ),
    BeforeValidator(on_or_off),
    AfterValidator(_group_or_choice),
    MaybeToken,
]
"""`auto`, `on`, `off`, or an existing group (EC2 API reference, CreatePlacementGroup, 2026-11)."""
Reservation = Annotated[
    str,
    Text(
        r"^(cr-[0-9a-f]{8,17}|arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9_.-]+(/[a-z0-9]{26})?)$",
        "the ID of a capacity reservation, or the ARN of a resource group of several (arn:aws:resource-groups:REGION:ACCOUNT:group/NAME)",
        "cr-0123456789abcdef0",
    ),
    MaybeToken,
]
"""One reservation, or a group (patterns of the APIs of EC2 and Resource Groups, 2026-11)."""
