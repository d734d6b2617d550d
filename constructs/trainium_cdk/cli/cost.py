"""`trn cost`: what an environment costs, item by item."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Json
from trainium_cdk.cli.output import put, say, table
from trainium_cdk.cli.preflight import engine_of

if TYPE_CHECKING:
    from trainium_cdk.checks.live import Target


def cost(
    stack: Annotated[str, typer.Argument(envvar="TRN_STACK", help="Stack of the environment.")] = DEFAULT_STACK,
    env: EnvFile = None,
    regions: Annotated[bool, typer.Option("--regions", help="The totals in every region of the catalogue.")] = False,
    as_json: Json = False,
) -> None:
    """Print what an environment costs an hour: each item while no job runs, and with all nodes.

    From dated list prices; nothing is asked of AWS. A price that the catalogue does not have is unknown, never guessed.
    """
    from trainium_cdk import settings
    from trainium_cdk.catalog.constants import HOURS_OF_A_MONTH
    from trainium_cdk.checks.live import Target
    from trainium_cdk.checks.live.cost import cost as estimate

    environment = settings.load(env)
    target, catalog = Target(environment, engine_of(stack, environment)), environment.catalog
    dated = f"on-demand list prices of {catalog.prices_date} ({catalog.prices_source})"
    if regions:
        found = {region: _in(target, region) for region in sorted(set(catalog.zone_regions.values()))}
        if as_json:
            put({"stack": target.stack, "prices": str(catalog.prices_date), "regions": found})
            return
        table("", ["region", "idle USD/h", "full USD/h", "note"], [_row(region, one) for region, one in found.items()])
        say(dated)
        return
    made = estimate(target)
    if as_json:
        put({"stack": target.stack, "prices": str(catalog.prices_date), **made})
        return
    rows = [[item["what"], _usd(item["idle"]), _usd(item["full"])] for item in made["items"]]
    least = {name: "at least " if made[f"unknown_{name}"] else "" for name in ("idle", "full")}
    rows.append(["all", *(f"{least[name]}{made[f'{name}_hour']:,.2f}" for name in ("idle", "full"))])
    rows.append(
        ["a month", *(f"{least[name]}{made[f'{name}_hour'] * HOURS_OF_A_MONTH:,.0f}" for name in ("idle", "full"))]
    )
    table("", ["item", "idle USD/h", "full USD/h"], rows)
    say(f"{environment.region}, {dated}; not counted: {', '.join(made['not_counted'])}")
    if made["unknown_full"]:
        say(
            f"unknown prices: add them under catalog.prices.{environment.region} or catalog.service_prices.{environment.region}"
        )


def _in(target: Target, region: str) -> dict[str, Any]:
    """The totals of the environment, moved to a region: of the items whose price is known, and how many are unknown."""
    from trainium_cdk.checks.live.cost import cost as estimate

    environment = target.env.model_copy(update={"region": region})
    missing = [kind for kind in target.inventory.instance_types if not environment.catalog.zone_ids(kind, region)]
    if missing:
        note = f"{', '.join(missing)} is not offered there, as far as the catalogue knows"
        return {"idle": None, "full": None, "note": note}
    made = estimate(replace(target, env=environment))
    unknown, found = {*made["unknown_idle"], *made["unknown_full"]}, {}
    for name in ("idle", "full"):
        known = any(item[name] for item in made["items"])
        found[name] = made[f"{name}_hour"] if known else None
    return {**found, "note": f"at least: {len(unknown)} of {len(made['items'])} prices are unknown" if unknown else ""}


def _row(region: str, found: dict[str, Any]) -> list[str]:
    return [region, _usd(found["idle"]), _usd(found["full"]), found["note"]]


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4f}".removesuffix("00")
