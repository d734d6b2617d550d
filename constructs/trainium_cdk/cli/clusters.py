"""`trn clusters`: the deployed clusters of an account."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli import named
from trainium_cdk.cli.options import EnvFile, Json, Region, described
from trainium_cdk.cli.output import marked, put, say, say_if_sandbox, table
from trainium_cdk.cli.terminal import draws
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.cli.board import Cursor
    from trainium_cdk.jobs.report.live_clusters import LiveClusters


def clusters(
    ctx: typer.Context,
    regions: Annotated[
        str | None,
        typer.Option(metavar="R,...|all", help="Regions; `all`: those with Trainium. Default: the one of --region."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay, and show them with the jobs of all; Enter opens one.")
    ] = False,
    web: Annotated[bool, typer.Option("--web", help="The same in a browser: serve a page on this machine.")] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, show_default=False, help="With --web: port of this machine. Default: a free one."
        ),
    ] = 0,
    region: Region = None,
    _env: EnvFile = None,
    as_json: Json = False,
) -> None:
    """List the deployed clusters of the account.

    Of all engines: nodes, jobs, and the price of an hour; with --json also their jobs. It only reads. Exit code 1: a region could
    not be read. A cluster that does not answer has its reason in the list.
    """
    from trainium_cdk.outputs.read import here, with_trainium

    wanted = [here(region)] if regions is None else named.regions(regions, with_trainium())
    environment = described(ctx)
    catalog = environment.catalog if environment else None
    if watch or web:
        from trainium_cdk.jobs.report.live_clusters import LiveClusters

        if as_json:
            raise typer.BadParameter("--json is of one moment: leave out --watch and --web")
        if not web and not draws(sys.stdout):
            raise TrnError("--watch needs a terminal. Leave it out, or use --json or --web")
        with LiveClusters(wanted, catalog) as live:
            if web:
                from trainium_cdk.cli.clusters_web import show

                show(live, port)
            else:
                _watch(live)
        return
    from trainium_cdk.jobs.clusters import overviews
    from trainium_cdk.jobs.report.board import CLUSTER, told, totals

    now = time.time()
    found, notes = overviews(wanted, catalog)
    if as_json:
        put(marked([asdict(one) for one in found]))
    elif found:
        say_if_sandbox()
        table("", [*CLUSTER, "note"], [[*(cell(one) for cell in CLUSTER.values()), told(one, now)] for one in found])
        say(f"{totals(found)}. All of a stack: trn cost")
    else:
        say(f"no cluster of trainium-cdk in {', '.join(wanted)}" + ("" if regions else ". Elsewhere: --regions all"))
    for note in notes:
        say(note)
    if notes:
        raise typer.Exit(1)


def _watch(live: LiveClusters) -> None:
    from trainium_cdk.cli import screen
    from trainium_cdk.cli.board import Cursor, view

    cursor = Cursor()
    while True:
        screen.frames(
            lambda width, height: view(live.board(), cursor, now=time.time(), width=width, height=height),
            lambda: cursor.opened is not None,
            lambda key: cursor.press(key, live.board().clusters, time.time()),
        )
        if cursor.opened is None:
            return
        try:
            _open(live, cursor)
        except TrnError as e:
            cursor.problem = str(e)
        cursor.opened = None


def _open(live: LiveClusters, cursor: Cursor) -> None:
    """The view of one cluster or job, until it is left."""
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.cli import watch

    if cursor.opened is None:
        return
    one, job = cursor.opened
    if job is None:
        watch.all_jobs(live.way(one.key))
        return
    jobs = live.way(one.key, job.team)
    if job.client != "trn":
        raise TrnError(f"{job.id} is not a job of trn: it is a {job.client} of another client")
    watch.one_job(jobs, jobs.status(job.id), Catalog.load(), stay=True)
