"""`trn cost`: what an environment costs, item by item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli.options import DEFAULT_STACK, EnvFile, Json, engine_of, stack_argument
from trainium_cdk.client.cli.output import echo_json, log, table
from trainium_cdk.description.catalog.lookup import CALCULATOR

if TYPE_CHECKING:
    from trainium_cdk.description.checks.live import CheckTarget

Estimate = Mapping[str, Any]


def cost(
    stack: Annotated[str, stack_argument(help="Stack of the environment.")] = DEFAULT_STACK,
    env: EnvFile = None,
    regions: Annotated[bool, typer.Option("--regions", help="The totals in every region of the catalogue.")] = False,
    as_json: Json = False,
) -> None:
    """Print what an environment costs an hour, item by item.

    First the least that must be paid. Each item while no job runs (idle), and with all nodes (full). From the catalogue's list prices, each with its date and source; nothing is asked of AWS. A price that is not known is unknown, never guessed: AWS's calculator is at https://calculator.aws/.
    """
    from trainium_cdk.description import settings
    from trainium_cdk.description.checks.live import CheckTarget
    from trainium_cdk.description.checks.live.cost import cost as estimate

    environment = settings.load(env or settings.no_file())
    target, catalog = CheckTarget(environment, engine_of(stack, environment)), environment.catalog
    head = {"stack": target.stack, "prices": str(catalog.prices_date)}
    if regions:
        found = dict(_everywhere(target))
        made = [one for one in found.values() if "items" in one]
        totals = {r: _totals(one) for r, one in found.items()}
        if as_json:
            echo_json({**head, "regions": {r: {**t, "quotes": found[r].get("quotes", {})} for r, t in totals.items()}})
        else:
            table(
                "",
                ["region", "idle USD/h", "full USD/h", "note"],
                [[r, _usd(t["idle"]), _usd(t["full"]), t["note"]] for r, t in totals.items()],
            )
    else:
        made = [estimate(target)]
        if as_json:
            echo_json({**head, **made[0]})
        else:
            _show(made[0])
    if not as_json:
        for line in (*_marked(made), *_dated(made)):
            log(line)


def _everywhere(target: CheckTarget) -> Iterator[tuple[str, Estimate]]:
    """The estimate of the environment, moved to each region; only a note where its nodes are not offered."""
    from trainium_cdk.description.checks.live.cost import cost as estimate

    for region in sorted(set(target.env.catalog.zone_regions.values())):
        environment = target.env.model_copy(update={"region": region})
        missing = [kind for kind in target.inventory.instance_types if not environment.catalog.zone_ids(kind, region)]
        if missing:
            yield region, {"note": f"{', '.join(missing)} is not offered there, as far as the catalogue knows"}
            continue
        yield region, estimate(replace(target, env=environment))


def _totals(found: Estimate) -> dict[str, Any]:
    """The totals, None where a part is unknown, and how many parts are."""
    from trainium_cdk.description.checks.live.cost import TOTALS

    if "items" not in found:
        return {"idle": None, "full": None, **found}
    unknown = {*found["unknown_idle"], *found["unknown_full"]}
    note = f"{len(unknown)} of {len(found['items'])} prices are unknown ({CALCULATOR})" if unknown else ""
    return {**{n: found[f"{n}_hour"] for n in TOTALS}, "note": note}


def _show(made: Estimate) -> None:
    from trainium_cdk.description.catalog.constants import HOURS_OF_A_MONTH
    from trainium_cdk.description.checks.live.cost import TOTALS, describe_least

    log(describe_least(made))
    quotes, region = made["quotes"], made["region"]
    rows = [
        [f"{item['what']}{' *' if quotes[item['price']]['secondary'] else ''}", _usd(item["idle"]), _usd(item["full"])]
        for item in made["items"]
    ]  # fmt: skip
    calculator = f" ({CALCULATOR})" if made["unknown_full"] else ""
    rows.append([f"all{calculator}", *(_total(made, name) for name in TOTALS)])
    months = ("" if made[f"unknown_{name}"] else f"{made[f'{name}_hour'] * HOURS_OF_A_MONTH:,.0f}" for name in TOTALS)
    rows.append(["a month", *months])
    table("", ["item", "idle USD/h", "full USD/h"], rows)
    log(f"{region}; not counted: {', '.join(made['not_counted'])}")
    if known := [f"{what} {_usd(usd)} USD" for name, what in made["rates"].items() if (usd := quotes[name]["usd"])]:
        log(f"paid by use: {', '.join(known)}")
    unknown: dict[str, list[str]] = {}
    for item in made["items"]:
        if item["full"] is None:
            unknown.setdefault(quotes[item["price"]]["text"], []).append(item["what"])
    for text, whats in unknown.items():
        log("; ".join(filter(None, (f"no price of {', '.join(whats)}", text))))
    if any("." in item["price"] and item["full"] is None for item in made["items"]):
        log(f"you can add prices of instance types to the environment file: catalog.prices.{region}")


def _total(made: Estimate, name: str) -> str:
    known = f"{made[f'known_{name}_hour']:,.2f}"
    if not made[f"unknown_{name}"]:
        return known
    return f"unknown (known so far: {known})" if made[f"known_{name}_hour"] else "unknown"


def _marked(made: Iterable[Estimate]) -> Iterator[str]:
    """Explain the marks of the table, one line each."""
    used = {name: quote for one in made for name, quote in one["quotes"].items() if quote["usd"] is not None}
    if quoted := sorted(name for name, quote in used.items() if quote["secondary"]):
        yield f"* read on AWS's page by others, and quoted by them: {', '.join(quoted)}"
    if blocks := sorted(name for name, quote in used.items() if quote["capacity_block"]):
        yield f"a capacity block's price: AWS publishes no on-demand price of {', '.join(blocks)}"


def _dated(made: Iterable[Estimate]) -> Iterator[str]:
    dates = {q["date"] for one in made for q in one["quotes"].values() if q["source"] == "catalogue"}
    if dates:
        days = min(dates) if len(dates) == 1 else f"{min(dates)} to {max(dates)}"
        yield f"catalogue: list prices of {days}; --json has the source of each. For others {CALCULATOR}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4f}".removesuffix("00")
