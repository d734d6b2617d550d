"""`trn cost`: what an environment costs, item by item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.catalog.prices import ASK
from trainium_cdk.cli.check import engine_of
from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, Json, Live, stack_argument
from trainium_cdk.cli.output import echo_json, log, log_if_sandbox, table, with_sandbox

if TYPE_CHECKING:
    from trainium_cdk.checks.live import Target

Estimate = Mapping[str, Any]


def cost(
    stack: Annotated[str, stack_argument(help="Stack of the environment.")] = DEFAULT_STACK,
    env: EnvFile = None,
    regions: Annotated[bool, typer.Option("--regions", help="The totals in every region of the catalogue.")] = False,
    live: Live = False,
    as_json: Json = False,
) -> None:
    """Print what an environment costs an hour, item by item.

    Each while no job runs (idle), and with all nodes (full). From dated list prices; nothing is asked of AWS without --live. A price that is not known is unknown, never guessed.
    Exit code 1: --live got no price at all from the Price List.
    """
    from trainium_cdk import settings
    from trainium_cdk.checks.live import Target

    environment = settings.load(env)
    target, catalog = Target(environment, engine_of(stack, environment)), environment.catalog
    head = {"stack": target.stack, "prices": str(catalog.prices_date)}
    if live and not as_json:
        log_if_sandbox()
    if regions:
        found = dict(_everywhere(target, live=live))
        made = [one for one in found.values() if "items" in one]
        notes, totals = list(_regional(made)), {r: _totals(one) for r, one in found.items()}
        if as_json:
            data = {**head, "regions": {r: {**t, "quotes": found[r].get("quotes", {})} for r, t in totals.items()}}
            echo_json(with_sandbox(data) if live else data)
        else:
            table(
                "",
                ["region", "idle USD/h", "full USD/h", "note"],
                [[r, _usd(t["idle"]), _usd(t["full"]), t["note"]] for r, t in totals.items()],
            )
    else:
        made = [_estimate(target, live=live)]
        notes = list(_fallbacks(made[0]))
        if as_json:
            echo_json(with_sandbox({**head, **made[0]}) if live else {**head, **made[0]})
        else:
            _show(made[0], live=live)
    quotes = [quote for one in made for quote in one["quotes"].values()]
    if not as_json:
        for line in (*notes, *_marked(made), *_dated(made)):
            log(line)
    if any(quote["why"] for quote in quotes) and not any(quote["source"] == "Price List" for quote in quotes):
        raise typer.Exit(1)


def _estimate(target: Target, *, live: bool) -> Estimate:
    from trainium_cdk.checks.live.cost import cost as estimate
    from trainium_cdk.checks.live.price_list import ask

    return estimate(ask(target) if live else target)


def _everywhere(target: Target, *, live: bool) -> Iterator[tuple[str, Estimate]]:
    """The estimate of the environment, moved to each region; only a note where its nodes are not offered."""
    for region in sorted(set(target.env.catalog.zone_regions.values())):
        environment = target.env.model_copy(update={"region": region})
        missing = [kind for kind in target.inventory.instance_types if not environment.catalog.zone_ids(kind, region)]
        if missing:
            yield region, {"note": f"{', '.join(missing)} is not offered there, as far as the catalogue knows"}
            continue
        found = _estimate(replace(target, env=environment), live=live)
        yield region, found
        reasons = {quote["why"] for quote in found["quotes"].values() if quote["source"] != "environment file"}
        live = live and (
            len(reasons) != 1 or "" in reasons
        )  # one reason for all: access, which is the same in other regions


def _totals(found: Estimate) -> dict[str, Any]:
    """The totals, None where a part is unknown, and how many parts are."""
    from trainium_cdk.checks.live.cost import TOTALS

    if "items" not in found:
        return {"idle": None, "full": None, **found}
    unknown = {*found["unknown_idle"], *found["unknown_full"]}
    asked = any(quote["why"] for quote in found["quotes"].values())
    return {
        **{n: found[f"{n}_hour"] for n in TOTALS},
        "note": f"{len(unknown)} of {len(found['items'])} prices are unknown{'' if asked else f' ({ASK})'}"
        if unknown
        else "",
    }


def _show(made: Estimate, *, live: bool) -> None:
    from trainium_cdk.catalog.constants import HOURS_OF_A_MONTH
    from trainium_cdk.checks.live.cost import TOTALS

    quotes, region = made["quotes"], made["region"]
    rows = [
        [f"{item['what']}{' *' if quotes[item['price']]['secondary'] else ''}", _usd(item["idle"]), _usd(item["full"]), _source(quotes[item["price"]])]
        for item in made["items"]
    ]  # fmt: skip
    ask = f" ({ASK})" if made["unknown_full"] and not live else ""
    rows.append([f"all{ask}", *(_total(made, name) for name in TOTALS), ""])
    months = ("" if made[f"unknown_{name}"] else f"{made[f'{name}_hour'] * HOURS_OF_A_MONTH:,.0f}" for name in TOTALS)
    rows.append(["a month", *months, ""])
    columns = ["item", "idle USD/h", "full USD/h", "price"]
    table("", columns if live else columns[:-1], rows if live else [row[:-1] for row in rows])
    log(f"{region}; not counted: {', '.join(made['not_counted'])}")
    if known := [f"{what} {_usd(usd)} USD" for name, what in made["rates"].items() if (usd := quotes[name]["usd"])]:
        log(f"paid by use: {', '.join(known)}")
    unknown: dict[tuple[str, str], list[str]] = {}
    for item in made["items"]:
        if item["full"] is None:
            quote = quotes[item["price"]]
            unknown.setdefault((quote["page"], quote["text"]), []).append(item["what"])
    for (page, text), whats in unknown.items():
        parts = [f"no price of {', '.join(whats)}", f"AWS publishes it at {page}" if page else "", text]
        log("; ".join(filter(None, parts)))
    if unknown:
        log(f"you can add prices to the environment file: catalog.prices.{region}, catalog.service_prices.{region}")


def _total(made: Estimate, name: str) -> str:
    known = f"{made[f'known_{name}_hour']:,.2f}"
    if not made[f"unknown_{name}"]:
        return known
    return f"unknown (known so far: {known})" if made[f"known_{name}_hour"] else "unknown"


def _marked(made: Iterable[Estimate]) -> Iterator[str]:
    """What the marks mean, a line for each."""
    used = {name: quote for one in made for name, quote in one["quotes"].items() if quote["usd"] is not None}
    if quoted := sorted(name for name, quote in used.items() if quote["secondary"]):
        yield f"* read on AWS's page by others, and quoted by them: {', '.join(quoted)}"
    if blocks := sorted(name for name, quote in used.items() if quote["capacity_block"]):
        yield f"a capacity block's price: AWS publishes no on-demand price of {', '.join(blocks)}"


def _dated(made: Iterable[Estimate]) -> Iterator[str]:
    dates = {q["date"] for one in made for q in one["quotes"].values() if q["source"] == "catalogue"}
    if dates:
        days = min(dates) if len(dates) == 1 else f"{min(dates)} to {max(dates)}"
        yield f"catalogue: list prices of {days}; --json has the source of each"


def _fallbacks(made: Estimate) -> Iterator[str]:
    """Why the Price List has not given prices: one line for each reason, with the prices and what is used for them."""
    reasons: dict[str, dict[str, str]] = {}
    for name, quote in made["quotes"].items():
        if quote["why"]:
            reasons.setdefault(quote["why"], {})[name] = _source(quote)
    for why, prices in reasons.items():
        yield f"{why}: {', '.join(f'{name} ({source})' for name, source in prices.items())}"


def _regional(made: Iterable[Estimate]) -> Iterator[str]:
    """The same in short, a line for each region."""
    for one in made:
        reasons = [quote["why"] for quote in one["quotes"].values() if quote["why"]]
        if reasons and len(set(reasons)) == 1:
            yield f"{one['region']}: {reasons[0]}"
        elif reasons:
            yield f"{one['region']}: {len(reasons)} of {len(one['quotes'])} prices are not the Price List's; with this region, `trn cost --live` names them"


def _source(quote: Mapping[str, Any]) -> str:
    """`Price List 2026-08-10`, `unknown`."""
    return f"{quote['source']} {quote['date']}".strip() or "unknown"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.4f}".removesuffix("00")
