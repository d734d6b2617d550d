"""`trn nodes`: lists the nodes of a cluster, shows their use, and stops and starts a Slurm cluster's nodes together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from trainium_cdk.client.cli.app import SETTINGS
from trainium_cdk.client.cli.named import as_given, length
from trainium_cdk.client.cli.options import JobId, Json, Target, backend, on_cluster, only
from trainium_cdk.client.cli.output import echo_json, log, log_if_sandbox, table, with_sandbox
from trainium_cdk.client.cli.progress import size
from trainium_cdk.description.catalog.lookup import describe_sum
from trainium_cdk.description.engines import SLURM
from trainium_cdk.errors import JobError, TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend
    from trainium_cdk.client.jobs.slurm.fleet import Wanted


class _Listing(TyperGroup):
    """Without a command, it lists."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        if not given and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


nodes = typer.Typer(
    cls=_Listing,
    help="List the nodes of a cluster, show their use, or stop and start all of a Slurm cluster.\n\n`trn nodes` is `trn nodes list`.",
    **SETTINGS,
)


@nodes.command("list")
@on_cluster()
def list_(
    on: Target,
    every: Annotated[bool, typer.Option("--all", help="Also nodes that are powered down, and cost nothing.")] = False,
    as_json: Json = False,
) -> None:
    """List the nodes of a cluster.

    State, job, age, price of an hour, and why a node is down.
    """
    from trainium_cdk.description.catalog import Catalog

    jobs = backend(on)
    found, catalog = jobs.nodes(), Catalog.load()
    shown = [node for node in found if node.on or every]
    prices = {kind: catalog.price(kind, jobs.cluster.region) for kind in {node.instance_type for node in found}}
    if as_json:
        rows = [{**asdict(node), "usd_per_hour": prices.get(node.instance_type) if node.on else 0} for node in shown]
        echo_json(with_sandbox(rows))
        return
    log_if_sandbox()
    now = time.time()
    cells = [
        [
            node.name,
            node.queue,
            node.state,
            node.job,
            length(now - node.booted) if node.booted and node.on else "",
            ("unknown" if (price := prices.get(node.instance_type)) is None else f"{price:,.2f}") if node.on else "",
            node.reason,
        ]
        for node in shown
    ]
    table("", ["node", "queue", "state", "job", "age", "USD/h", "reason"], cells)
    running = [prices.get(node.instance_type) for node in found if node.on]
    off = len(found) - len(running)
    log(
        f"{counted(len(running), 'node is', 'nodes are')} on: {together(running)}"
        + (f". {off} {'is' if off == 1 else 'are'} powered down{'' if every else ' (--all)'}" if off else "")
    )
    if getattr(jobs.cluster, "team", "") or getattr(jobs.cluster, "teams", ()):
        log("A node without a job may run one of another team: trn list --team NAME has its jobs")


def together(prices: Sequence[float | None]) -> str:
    """Add up the prices of nodes, and describe the sum. None: an unknown price.

    >>> together([21.5, 21.5]), together([21.5, None])
    ('43.00 USD an hour at list prices', 'unknown (known so far: 21.50 USD an hour at list prices; no price of 1 node; see https://calculator.aws/)')
    """
    known = [price for price in prices if price is not None]
    missing = [counted(len(prices) - len(known), "node")] if len(known) < len(prices) else []
    return describe_sum(sum(known), missing, "USD an hour at list prices")


@nodes.command()
@on_cluster()
def top(
    on: Target,
    id: JobId,
    node: Annotated[int | None, typer.Option(min=0, help="Open neuron-top on this node of the job: 0, 1, ...")] = None,
    as_json: Json = False,
) -> None:
    """Print the use of NeuronCores and memory on a job's nodes.

    As neuron-monitor reports it; with --node, neuron-top is opened there.
    """
    from trainium_cdk.client.jobs.metrics import ask_use, use_of

    jobs = backend(on)
    if node is not None:
        raise typer.Exit(jobs.execute(as_given(jobs, id), node, ["neuron-top"]))
    id = as_given(jobs, id)
    said = jobs.on_nodes(id, ask_use())
    found = [use for number, text in enumerate(said) if (use := use_of(number, text))]
    if not found:
        reason = next((text.strip().splitlines()[-1] for text in said if text.strip()), "no node answered")
        raise JobError(f"neuron-monitor reported nothing on the nodes of {id}: {reason[:200]}")
    if as_json:
        echo_json(with_sandbox([asdict(use) for use in found]))
        return
    log_if_sandbox()
    rows = [
        [
            str(use.node),
            str(use.cores),
            *("" if value is None else f"{value:.0f} %" for value in (use.used, use.least)),
            "" if use.device_bytes is None else size(use.device_bytes),
            "" if use.host_bytes is None else f"{size(use.host_bytes)} of {size(use.host_total or 0)}",
        ]
        for use in found
    ]
    table("", ["node", "cores in use", "mean", "idlest", "device memory", "host memory"], rows)
    log(f"of one second. The processes of a node: trn nodes top {id} --node 0")


Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
Timeout = Annotated[float | None, typer.Option(min=0, help="Seconds. Default: no limit.")]


@on_cluster(team=False)
def status(
    on: Target,
    as_json: Json = False,
) -> None:
    """Show whether the fleet is RUNNING, STOPPED or PROTECTED.

    PROTECTED: stopped by ParallelCluster, after nodes that failed to start.
    """
    from contextlib import suppress
    from dataclasses import asdict
    from datetime import datetime

    from trainium_cdk.client.cli.named import clock
    from trainium_cdk.client.jobs.slurm import fleet as fleets

    jobs = _slurm(on)
    found = fleets.status(jobs)
    if as_json:
        echo_json(asdict(found))
        return
    since = found.since
    with suppress(ValueError):
        since = clock(datetime.fromisoformat(since).timestamp())
    log(f"the fleet of {jobs.cluster.cluster_name} is {found.status}" + (f" since {since}" if since else ""))
    if found.status == "PROTECTED":
        log(f"`trn why {jobs.cluster.stack}` has the reason; `trn nodes start` starts it again")


@on_cluster(team=False)
def stop(
    on: Target,
    force: Annotated[
        bool, typer.Option("--force", help="Also if jobs run or wait: their nodes end, and they start again later.")
    ] = False,
    wait: Wait = True,
    timeout: Timeout = None,
) -> None:
    """Stop the fleet: all compute nodes end, and no job starts. Some updates of the cluster need it (`trn diff`)."""
    _change(_slurm(on), "STOPPED", force=force, wait=wait, timeout=timeout)


@on_cluster(team=False)
def start(
    on: Target,
    wait: Wait = True,
    timeout: Timeout = None,
) -> None:
    """Start the fleet again: nodes start as jobs need them."""
    _change(_slurm(on), "RUNNING", force=False, wait=wait, timeout=timeout)


def _change(jobs: SlurmBackend, wanted: Wanted, *, force: bool, wait: bool, timeout: float | None) -> None:
    from trainium_cdk.client.jobs.slurm import fleet as fleets

    before = fleets.change(jobs, wanted, force=force)
    if before.status == wanted:
        log(f"the fleet is {wanted} already")
    elif wait:
        fleets.wait(jobs, wanted, log, timeout=timeout)


def _slurm(on: Target) -> SlurmBackend:
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend

    found = only(SlurmBackend, backend(on), SLURM.title, SLURM.stack)
    if found.cluster.engine != SLURM.name:
        raise TrnError(
            f"stack {found.cluster.stack} has no ParallelCluster: its nodes are not stopped and started as a fleet. Nodes without a job stop "
            "automatically; cancel the jobs (trn cancel), and set min_nodes: 0 for nodes that always run"
        )
    return found


nodes.command()(status)
nodes.command()(stop)
nodes.command()(start)
