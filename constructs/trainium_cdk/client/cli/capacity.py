"""`trn capacity`: where nodes can be had, how soon and at which price."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli import named
from trainium_cdk.client.cli.options import EnvFile, Json
from trainium_cdk.client.cli.output import echo_json, log, log_if_sandbox, table, with_sandbox
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description.catalog.lookup import CALCULATOR
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping

    from trainium_cdk.description.checks.live.model import Quote
    from trainium_cdk.description.checks.live.regions import Supply, Wanted, Way
    from trainium_cdk.description.settings import Environment


def capacity(
    env: EnvFile = None,
    regions: Annotated[
        str | None,
        typer.Option(metavar="R,...|all", help="Regions; `all`: the catalogue's. Default: the environment's."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Instance type. Default: the environment's first.")
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, max=1000, help="Number of instances at once.")] = 1,
    hours: Annotated[int, typer.Option(min=24, max=4368, help="Duration of a capacity block in hours.")] = 24,
    as_json: Json = False,
) -> None:
    """Print where nodes can be had, from when, at which price.

    On demand, Spot and capacity blocks: what can start soonest first, then the cheapest. Prices are of an instance for an hour. `now` is not a promise that EC2 has instances: it means that the type is offered and
    that the quota is large enough. Only read requests are sent, and nothing is bought. Exit code 1: nothing can start
    anywhere.
    """
    import datetime as dt

    from trainium_cdk.description import settings
    from trainium_cdk.description.checks.live import Aws
    from trainium_cdk.description.checks.live.regions import ACTIONS, Wanted, ask, ways

    if env is None and not (kind and regions):
        settings.no_file(instead=". Or give --type and --regions")
    environment = settings.load(env)
    catalog = environment.catalog
    kind = kind or next(iter(_types(environment)), "")
    if kind not in catalog.instances:
        raise TrnError(named.unknown("the catalogue has no instance type", kind, catalog.instances))
    known = {*catalog.zone_regions.values(), environment.region}
    asked = [environment.region] if regions is None else named.regions(regions, known)
    quotes = _on_demand(environment, kind, asked)
    usd = {region: quote.usd for region, quote in quotes.items()}
    wanted = Wanted(catalog, catalog.instance(kind), nodes, hours, dt.datetime.now(dt.UTC), usd)
    supplies, notes = ask(Aws(environment.region, quick=True).limited_to(ACTIONS), wanted, asked)
    rows = ways(supplies)
    if as_json:
        echo_json(with_sandbox({
            "instance_type": kind, "nodes": nodes, "hours": hours, "time": wanted.now.isoformat(), "notes": notes,
            "prices": str(catalog.prices_date), "regions": [{**_data(supply), "quote": asdict(quotes[supply.region])} for supply in supplies],
        }))  # fmt: skip
    else:
        log_if_sandbox()
        table(
            f"{nodes} x {kind}", ["region", "way", "start (UTC)", "USD/h", "note"],
            [*_rows(rows, wanted.now, every=len(asked) == 1), *([s.region, "-", "-", "", s.note] for s in supplies if not s.ways)],
        )  # fmt: skip
    for note in notes:
        log(note)
    best = next(((supply, way) for supply, way in rows if way.start), None)
    if best is None:
        log(f"{nodes} x {kind} cannot start in {', '.join(asked)}, as far as AWS tells")
        raise typer.Exit(1)
    if not as_json:
        for line in _prices({supply.region: quotes[supply.region] for supply in supplies if supply.ways}):
            log(line)
        _say_next(environment, wanted, *best)


def _on_demand(environment: Environment, kind: str, regions: Iterable[str]) -> dict[str, Quote]:
    """Region -> the on-demand price of an instance type there; unknown where AWS sells it in capacity blocks alone."""
    from trainium_cdk.description.checks.live.model import CheckTarget, Quote

    engine = next(iter(environment.engines), "")
    quotes = {r: CheckTarget(environment.model_copy(update={"region": r}), engine).quote(kind) for r in regions}
    return {region: Quote() if quote.capacity_block else quote for region, quote in quotes.items()}


def _types(environment: Environment) -> Iterable[str]:
    sections = (environment.sections[name] for name in environment.engines)
    return (node.resource.instance_type for section in sections for node in section.nodes())


def _rows(rows: list[tuple[Supply, Way]], now: dt.datetime, *, every: bool) -> list[list[str]]:
    """A row for each way; of blocks the cheapest of each region, unless `every`."""
    blocks: dict[str, Way] = {}
    for supply, way in rows:
        if way.offering and (supply.region not in blocks or (way.usd or 0) < (blocks[supply.region].usd or 0)):
            blocks[supply.region] = way
    shown = [(s, w) for s, w in rows if every or not w.offering or w is blocks[s.region]]
    return [
        [
            supply.region,
            "block" if way.capacity_type == "capacity-block" else way.capacity_type,
            "-" if way.start is None else "now" if way.start <= now else f"{way.start:%b %d %H:%M}",
            "unknown" if way.usd is None else f"{way.usd:,.2f}",
            _note(way),
        ]
        for supply, way in shown
    ]


def _note(way: Way) -> str:
    if way.offering:
        o = way.offering
        length = (o.end - o.start).total_seconds() / 3600
        return f"{o.zone_id}: {o.nodes} x {length:.0f} h for {float(o.price):,.2f} {o.currency}"
    prices = [f"{zone} {way.spot_prices[zone]:,.2f}" if way.spot_prices else zone for zone in way.zone_ids]
    if way.capacity_type == "capacity-block":
        return way.note
    score = [] if way.score is None else [f"score {way.score} of 10"]
    free = way.quota is not None and way.start is not None
    quota = [f"{way.used or 0:,} of {way.quota:,.0f} vCPUs used"] if free else []
    return "; ".join([*filter(None, [way.note]), ", ".join(prices), *score, *quota])


def _prices(quotes: Mapping[str, Quote]) -> Iterator[str]:
    """Describe the sources of the on-demand prices."""
    sources: dict[str, list[str]] = {}
    for region, quote in quotes.items():
        source = f"{quote.source} {quote.date}".strip() or f"unknown ({CALCULATOR})"
        sources.setdefault(source, []).append(region)
    found = [f"{source} ({', '.join(of)})" if len(sources) > 1 else source for source, of in sorted(sources.items())]
    yield f"on-demand prices: {'; '.join(found)}; a USD/h is of one instance"


def _data(supply: Supply) -> dict[str, Any]:
    found = []
    for way in supply.ways:
        usd = None if way.usd is None else round(way.usd, 4)
        data = {**asdict(way), "usd": usd, "start": way.start.isoformat() if way.start else None}
        if o := way.offering:
            times = {"start": o.start.isoformat(), "end": o.end.isoformat()}
            data["offering"] = {**asdict(o), **times, "command": o.command}
        found.append(data)
    return {"region": supply.region, "ways": found, "note": supply.note}


def _say_next(environment: Environment, wanted: Wanted, supply: Supply, way: Way) -> None:
    if way.offering:
        log(f"to buy this block (the full price is charged at once): {way.offering.command} --region {supply.region}")
    if supply.region != environment.region:
        there = f"region: {supply.region} and network: {{zone_ids: [{way.zone_ids[0]}]}}"
        if environment.source.lines:
            log(
                f"to use {supply.region}: copy {environment.source.file}, and write another name, {there} into the copy. "
                f"Leave out ids and ARNs of {environment.region}"
            )
        else:  # there is no file to copy
            go = ("--instance-type", wanted.kind.name, "--nodes", wanted.nodes, "--region", supply.region)
            log(f"to use {supply.region} ({there}): {printed('trn', 'init', *go)}")
