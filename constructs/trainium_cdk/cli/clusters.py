"""`trn clusters`: the deployed clusters of an account."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trainium_cdk.cli.options import EnvFile, Json, Region
from trainium_cdk.cli.output import put, say, table
from trainium_cdk.errors import TrnError


def clusters(
    regions: Annotated[
        str | None,
        typer.Option(metavar="R,...|all", help="Regions; `all`: those with Trainium. Default: the one of --region."),
    ] = None,
    region: Region = None,
    _env: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the deployed clusters of the account, of all engines: nodes, jobs, and the price of an hour. It only reads.

    Exit code 1: a region could not be read. A cluster that does not answer has its reason in the list.
    """
    from trainium_cdk.jobs.clusters import overviews

    wanted = _regions(regions, region)
    found, notes = overviews(wanted)
    if as_json:
        put([asdict(one) for one in found])
    elif found:
        columns = ["region", "stack", "engine", "state", "nodes", "busy", "jobs", "waiting", "USD/h", "note"]
        table("", columns, [
            [
                one.region, one.stack, one.engine, one.state,
                *("" if n is None else str(n) for n in (one.nodes, one.busy, one.running, one.waiting)),
                ("" if one.nodes is None else "unknown") if one.usd_per_hour is None else f"{one.usd_per_hour:,.2f}",
                one.note,
            ]
            for one in found
        ])  # fmt: skip
        known = [one.usd_per_hour for one in found if one.usd_per_hour is not None]
        rest = f", and {len(found) - len(known)} of unknown price" if len(known) < len(found) else ""
        say(f"nodes on demand: {sum(known):,.2f} USD an hour for {len(known)} clusters{rest}. All of a stack: trn cost")
    else:
        say(f"no cluster of trainium-cdk in {', '.join(wanted)}" + ("" if regions else ". Elsewhere: --regions all"))
    for note in notes:
        say(note)
    if notes:
        raise typer.Exit(1)


def _regions(regions: str | None, region: str | None) -> list[str]:
    from trainium_cdk.outputs.read import here, with_trainium

    if regions == "all":
        return sorted(with_trainium())
    named = [name.strip() for name in (regions or "").split(",") if name.strip()]
    if regions is not None and not named:
        raise typer.BadParameter("name regions, or all", param_hint="--regions")
    if named and (unknown := sorted({*named} - with_trainium())):
        raise TrnError(
            f"{', '.join(unknown)[:80]} is no region with Trainium. Use {', '.join(sorted(with_trainium()))}"
        )
    return named or [here(region)]
