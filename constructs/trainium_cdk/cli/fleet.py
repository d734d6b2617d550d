"""`trn nodes status`, `stop`, `start`: the compute nodes of a Slurm cluster together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.options import Json, Target, backend, on_cluster, only
from trainium_cdk.cli.output import echo_json, log
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.backend import SlurmBackend
    from trainium_cdk.jobs.slurm.fleet import Wanted

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

    from trainium_cdk.cli.named import clock
    from trainium_cdk.jobs.slurm import fleet as fleets

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
    from trainium_cdk.jobs.slurm import fleet as fleets

    before = fleets.change(jobs, wanted, force=force)
    if before.status == wanted:
        log(f"the fleet is {wanted} already")
    elif wait:
        fleets.wait(jobs, wanted, log, timeout=timeout)


def _slurm(on: Target) -> SlurmBackend:
    from trainium_cdk.jobs.slurm.backend import SlurmBackend

    found = only(SlurmBackend, backend(on), SLURM.title, SLURM.stack)
    if found.cluster.engine != SLURM.name:
        raise TrnError(
            f"stack {found.cluster.stack} has no ParallelCluster: its nodes are not stopped and started as a fleet. Nodes without a job stop "
            "automatically; cancel the jobs (trn cancel), and set min_nodes: 0 for nodes that always run"
        )
    return found
