"""What a job's nodes cost in an hour. Pure."""

from __future__ import annotations

from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.lookup import BLOCK, CALCULATOR
from trainium_cdk.jobs.models import Plan


def hour_usd(fitted: Plan, catalog: Catalog) -> float | None:
    """What a job's nodes cost in an hour, each member's where it is an array; None if the price is not known."""
    if fitted.fleet.capacity_type == "capacity-block":
        return None
    price = catalog.price(fitted.fleet.instance_type, fitted.cluster.region)
    return None if price is None else price * fitted.job.nodes


def price(fitted: Plan, catalog: Catalog) -> str:
    """`hour_usd` in words, with how to learn it where it is not known."""
    fleet, region, usd = fitted.fleet, fitted.cluster.region, hour_usd(fitted, catalog)
    if usd is not None:
        spot = ", without spot's discount" if fleet.capacity_type == "spot" else ""
        source = catalog.price_source(fleet.instance_type, region)
        kind = BLOCK if source and source.capacity_block else "the on-demand price"
        dated = f" of {source.date}" if source else ""
        return f"{usd:,.2f} USD an hour, at {kind}{dated}{spot}, nodes only: `trn cost` has the rest"
    if fleet.capacity_type == "capacity-block":
        return "price unknown: a capacity block is paid for when it is bought (`trn capacity` asks for offers)"
    return (
        f"price unknown: the catalogue has none of {fleet.instance_type} in {region}: {CALCULATOR}; or add it to the environment "
        f"file (catalog: {{prices: {{{region}: {{{fleet.instance_type}: USD}}}}}})"
    )
