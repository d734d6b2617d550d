"""Where each price is found in the AWS Price List, and on which page AWS publishes it."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from trainium_cdk.catalog.facts import Fact, HttpsUrl
from trainium_cdk.catalog.files import read


class Offer(Fact):
    """One price.

    Attributes:
        page: where AWS publishes it for people.
        service: its service code in the Price List; empty if that must be looked up first.
        usage: the end of its usage type, behind the region's prefix.
        filters: attributes of its product, exactly.
        units: the units in which it may be quoted; empty: any.
        added_to: the price on which this one is a surcharge; empty if it is a whole price.
        words: of a service whose usage types are not known: what the texts of its product contain.
        without: what they do not contain.
    """

    page: HttpsUrl
    service: str = ""
    usage: str = ""
    filters: dict[str, str] = Field(default={})
    units: tuple[str, ...] = ()
    added_to: str = ""
    words: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@cache
def offer(name: str) -> Offer | None:
    """The entry of a price: of an instance type (`trn1.32xlarge`), or by its name in the service prices (`nat-gateway-hour`).

    None: the Price List is not asked for it.
    """
    data = read("price_list")
    if "." in name:
        entry = data["instances"]
        filters = {key: value.format(type=name) for key, value in entry["filters"].items()}
        return Offer(
            **{**entry, "usage": entry["usage"].format(type=name), "filters": filters, "units": data["units"]["hour"]}
        )
    if name not in data["services"]:
        return None
    units = next((units for end, units in data["units"].items() if name.endswith(f"-{end}")), ())
    return Offer(**data["services"][name], units=units)


def page(name: str) -> str:
    """Where AWS publishes a price for people; empty if that is not known."""
    found = offer(name)
    return found.page if found else ""


def endpoint(region: str) -> str:
    """The region of the Price List's endpoint that is closest to a region. All have the same prices."""
    first, europe, asia = read("price_list")["endpoints"]
    area = region.partition("-")[0]
    return str(europe if area in ("eu", "af", "il", "me") else asia if area == "ap" else first)
