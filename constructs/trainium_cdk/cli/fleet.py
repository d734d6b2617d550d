"""`trn fleet status`, `stop`, `start`: the compute nodes of a Slurm cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.options import DEFAULT_STACK, ClusterFile, EnvFile, Json, Local, Region, Stack, backend, only
from trainium_cdk.cli.output import put, say
from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import ScaleError

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.backend import SlurmBackend
    from trainium_cdk.jobs.slurm.fleet import Wanted

fleet = typer.Typer(help="The compute fleet of a Slurm cluster (ParallelCluster).", no_args_is_help=True, **SETTINGS)
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
Timeout = Annotated[float | None, typer.Option(min=0, help="Seconds. Default: no limit.")]


@fleet.command()
def status(
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """Show whether the fleet is RUNNING, STOPPED or PROTECTED (stopped by ParallelCluster after nodes that failed to start)."""
    from dataclasses import asdict

    from trainium_cdk.jobs.slurm import fleet as fleets

    jobs = _slurm(stack, region, local, cluster)
    found = fleets.status(jobs)
    if as_json:
        put(asdict(found))
        return
    say(
        f"the fleet of {jobs.cluster.cluster_name} is {found.status}" + (f" since {found.since}" if found.since else "")
    )
    if found.status == "PROTECTED":
        say(f"`trn why {jobs.cluster.stack}` has the reason; `trn fleet start` starts it again")


@fleet.command()
def stop(
    force: Annotated[
        bool, typer.Option("--force", help="Also if jobs run or wait: their nodes end, and they start again later.")
    ] = False,
    wait: Wait = True,
    timeout: Timeout = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
) -> None:
    """Stop the fleet: all compute nodes end, and no job starts. Some updates of the cluster need it (`trn diff`)."""
    _change(_slurm(stack, region, local, cluster), "STOPPED", force=force, wait=wait, timeout=timeout)


@fleet.command()
def start(
    wait: Wait = True,
    timeout: Timeout = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
) -> None:
    """Start the fleet again: nodes start as jobs need them."""
    _change(_slurm(stack, region, local, cluster), "RUNNING", force=False, wait=wait, timeout=timeout)


def _change(jobs: SlurmBackend, wanted: Wanted, *, force: bool, wait: bool, timeout: float | None) -> None:
    from trainium_cdk.jobs.slurm import fleet as fleets

    before = fleets.change(jobs, wanted, force=force)
    if before.status == wanted:
        say(f"the fleet is {wanted} already")
    elif wait:
        fleets.wait(jobs, wanted, say, timeout=timeout)


def _slurm(stack: str, region: str | None, local: bool | None, file: ClusterFile) -> SlurmBackend:
    from trainium_cdk.jobs.slurm import SlurmBackend

    found = only(SlurmBackend, backend(stack, region, local, file), SLURM.title, SLURM.stack)
    if found.cluster.engine != SLURM.name:
        raise ScaleError(
            f"stack {found.cluster.stack} has no ParallelCluster: its nodes are not stopped and started as a fleet. Nodes without a job stop "
            "by themselves; cancel the jobs (trn cancel), and set min_nodes: 0 for nodes that always run"
        )
    return found
