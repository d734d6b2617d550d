"""`trn clusters`: the deployed clusters of an account."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trainium_cdk.client.cli import named
from trainium_cdk.client.cli.options import EnvFile, Json, Region
from trainium_cdk.client.cli.output import echo_json, log, log_if_sandbox, table, with_sandbox


def clusters(
    regions: Annotated[
        str | None,
        typer.Option(metavar="R,...|all", help="Regions; `all`: those with Trainium. Default: the one of --region."),
    ] = None,
    region: Region = None,
    _env: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the deployed clusters of the account.

    For each engine: the state of the stack, and the number of running nodes, which cost money. It only reads. Exit code 1: a region could
    not be read. A cluster that does not answer has its reason in the list.
    Its jobs: `trn list --stack STACK`. Its nodes and their price: `trn nodes --stack STACK`.
    """
    from trainium_cdk.client.jobs.connection import list_clusters
    from trainium_cdk.description.outputs.read import here, with_trainium

    wanted = [here(region)] if regions is None else named.regions(regions, with_trainium())
    found, notes = list_clusters(wanted)
    if as_json:
        echo_json(with_sandbox([asdict(cluster) for cluster in found]))
    elif found:
        log_if_sandbox()
        columns = ["region", "stack", "engine", "state", "nodes", "note"]
        table("", columns, [["" if value is None else str(value) for value in asdict(c).values()] for c in found])
    else:
        log(f"no cluster of trainium-cdk in {', '.join(wanted)}" + ("" if regions else ". Elsewhere: --regions all"))
    for note in notes:
        log(note)
    if notes:
        raise typer.Exit(1)
