"""`trn nodes` and `trn ssh`: the nodes of a cluster, and a shell on one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.catalog.prices import describe_sum
from trainium_cdk.cli.named import length
from trainium_cdk.cli.options import Json, Target, backend, on_cluster
from trainium_cdk.cli.output import marked, put, say, say_if_sandbox, table


@on_cluster()
def nodes(
    on: Target,
    every: Annotated[bool, typer.Option("--all", help="Also nodes that are powered down, and cost nothing.")] = False,
    as_json: Json = False,
) -> None:
    """List the nodes of a cluster.

    State, job, age, price of an hour, and why a node is down.
    """
    from trainium_cdk.catalog import Catalog

    jobs = backend(on)
    found, catalog = jobs.nodes(), Catalog.load()
    shown = [node for node in found if node.on or every]
    prices = {kind: catalog.price(kind, jobs.cluster.region) for kind in {node.instance_type for node in found}}
    if as_json:
        rows = [{**asdict(node), "usd_per_hour": prices.get(node.instance_type) if node.on else 0} for node in shown]
        put(marked(rows))
        return
    say_if_sandbox()
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
    say(
        f"{counted(len(running), 'node is', 'nodes are')} on: {together(running)}"
        + (f". {off} {'is' if off == 1 else 'are'} powered down{'' if every else ' (--all)'}" if off else "")
    )
    if getattr(jobs.cluster, "team", "") or getattr(jobs.cluster, "teams", ()):
        say("A node without a job may run one of another team: trn clusters looks at all teams")


def together(prices: Sequence[float | None]) -> str:
    """What nodes cost together; None: an unknown price.

    >>> together([21.5, 21.5]), together([21.5, None])
    ('43.00 USD an hour at list prices', 'unknown (known so far: 21.50 USD an hour at list prices; no price of 1 node; `trn cost --live` asks AWS)')
    """
    known = [price for price in prices if price is not None]
    missing = [counted(len(prices) - len(known), "node")] if len(known) < len(prices) else []
    return describe_sum(sum(known), missing, "USD an hour at list prices")


@on_cluster()
def ssh(
    on: Target,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="Name of the node, as `trn nodes` prints it. Default: the head node; on Kubernetes the bastion host.",
        ),
    ] = None,
) -> None:
    """Open a shell on a node of a cluster.

    Through Session Manager: no port is open, and no key is needed.
    """
    jobs = backend(on)
    from trainium_cdk.jobs.sessions import terminal

    target, there = jobs.session(node)
    raise typer.Exit(terminal(target, jobs.cluster.region, there))
