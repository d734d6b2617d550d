"""Where the catalogue's prices come from, and how a sum of prices is written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from trainium_cdk.catalog.facts import Fact
from trainium_cdk.catalog.plain import join_words


class PriceSource(Fact):
    """Where prices come from.

    Attributes:
        date: the day on which they were published, or read if that is not known.
        text: what was read.
        secondary: a person has read the price and written it down; else it is a copy of AWS's own data.
        capacity_block: of an hour in a capacity block, of a type without an on-demand price.
    """

    date: dt.date
    text: str
    secondary: bool = False
    capacity_block: bool = False


class UnknownPrice(Fact):
    """Prices that were looked for and not found.

    Attributes:
        prices: instance types, and names of service prices.
        regions: empty for all.
        searched: where. date: when.
    """

    prices: tuple[str, ...]
    regions: tuple[str, ...] = Field(default=())
    searched: str
    date: dt.date

    def covers(self, name: str, region: str) -> bool:
        return name in self.prices and (not self.regions or region in self.regions)


def by_region(data: Mapping[str, Any]) -> Iterator[tuple[str, str, float, str]]:
    """Region, name, USD and key of the source of every price in the data file."""
    for name, groups in data["prices"].items():
        for group in groups:
            for region, usd in group["usd"].items():
                yield region, name, usd, group["from"]


CALCULATOR = "see https://calculator.aws/"
"""AWS's calculator, where the catalogue has no price."""
BLOCK = "a capacity block's price"


def describe_sum(known: float, missing: Sequence[str], unit: str = "USD an hour") -> str:
    """A sum of prices for people. If a part is unknown, so is the sum.

    Args:
        known: sum of the known parts.
        missing: the parts whose price is not known.

    >>> describe_sum(9.216, [])
    '9.22 USD an hour'
    >>> describe_sum(0.68, ["node management"])
    'unknown (known so far: 0.68 USD an hour; no price of node management; see https://calculator.aws/)'
    >>> describe_sum(0.0, ["NAT gateway", "head node"])
    'unknown (no price of NAT gateway and head node; see https://calculator.aws/)'
    """
    total = f"{known:,.2f} {unit}".strip()
    if not missing:
        return total
    named = [*missing[:3], f"{len(missing) - 3} more"] if len(missing) > 4 else missing
    parts = [f"known so far: {total}"] if known else []
    return f"unknown ({'; '.join([*parts, f'no price of {join_words(named)}', CALCULATOR])})"
