"""`trn nodes` and `trn ssh`: the nodes of a Slurm cluster, and a shell on one of them."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.cli.named import did_you_mean, length
from trainium_cdk.cli.options import DEFAULT_STACK, ClusterFile, EnvFile, Json, Local, Region, Stack, backend, only
from trainium_cdk.cli.output import put, say, table
from trainium_cdk.engines import SLURM
from trainium_cdk.errors import JobError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm import SlurmBackend
    from trainium_cdk.jobs.slurm.nodes import Node


def nodes(
    every: Annotated[bool, typer.Option("--all", help="Also nodes that are powered down, and cost nothing.")] = False,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
    as_json: Json = False,
) -> None:
    """List the nodes of a Slurm cluster: state, job, age, price of an hour, and why a node is down.

    On Kubernetes: kubectl get nodes (trn kubeconfig).
    """
    from trainium_cdk.catalog import Catalog

    jobs = _slurm(stack, region, local, cluster)
    found, catalog = _nodes(jobs), Catalog.load()
    shown = [node for node in found if node.on or every]
    prices = {f.instance_type: catalog.price(f.instance_type, jobs.cluster.region) for f in jobs.cluster.fleets}
    if as_json:
        put([{**asdict(node), "usd_per_hour": prices.get(node.instance_type) if node.on else 0} for node in shown])
        return
    now = time.time()
    rows = [
        [
            node.name,
            node.queue,
            node.state,
            node.job,
            length(now - node.booted) if node.booted and node.on else "",
            _price(prices.get(node.instance_type)) if node.on else "",
            node.reason,
        ]
        for node in shown
    ]
    table("", ["node", "queue", "state", "job", "age", "USD/h", "reason"], rows)
    on = [prices.get(node.instance_type) for node in found if node.on]
    known = [price for price in on if price is not None]
    cost = "at unknown prices" if len(known) < len(on) else f"{sum(known):,.2f} USD an hour on demand"
    say(f"{len(on)} nodes are on: {cost}. {len(found) - len(on)} are powered down{'' if every else ' (--all)'}")


def ssh(
    node: Annotated[
        str | None, typer.Argument(help="Name of the node, as `trn nodes` prints it. Default: the head node.")
    ] = None,
    stack: Stack = DEFAULT_STACK,
    region: Region = None,
    _env: EnvFile = None,
    local: Local = None,
    cluster: ClusterFile = None,
) -> None:
    """Open a shell on the head node or another node of a Slurm cluster, through Session Manager: no open port, no key."""
    jobs = _slurm(stack, region, local, cluster)
    target = jobs.cluster.head_node_id if node is None else _instance(jobs, node)
    for program, where in (
        ("aws", "the AWS CLI"),
        ("session-manager-plugin", "the Session Manager plugin of the AWS CLI"),
    ):
        if shutil.which(program) is None:
            raise TrnError(f"{program} is not installed: `trn ssh` needs {where}. Install it")
    command = ["aws", "ssm", "start-session", "--region", jobs.cluster.region, "--target", target]
    os.execvp(command[0], command)  # noqa: S606  it becomes the shell


def _slurm(stack: str, region: str | None, local: bool | None, cluster: Any) -> SlurmBackend:
    from trainium_cdk.jobs.slurm.backend import SlurmBackend

    return only(SlurmBackend, backend(stack, region, local, cluster), SLURM.title, SLURM.stack)


def _nodes(jobs: SlurmBackend) -> tuple[Node, ...]:
    from trainium_cdk.jobs.slurm.nodes import SCRIPT, parse

    return parse(jobs.run_shared(SCRIPT), jobs.cluster)


def _instance(jobs: SlurmBackend, name: str) -> str:
    """The EC2 instance id of a node.

    Raises:
        JobError: there is no such node, or it has no instance.
    """
    import boto3

    from trainium_cdk._aws import aws_errors_as

    found = {node.name: node for node in _nodes(jobs)}
    if name not in found:
        raise JobError(f"there is no node {name[:80]!r}{did_you_mean(name[:80], found)}. `trn nodes --all` lists them")
    if not found[name].on:
        raise JobError(f"node {name} is powered down. It starts when a job needs it")
    filters: Any = [
        {"Name": "private-ip-address", "Values": [found[name].address]},
        {"Name": "tag:parallelcluster:cluster-name", "Values": [jobs.cluster.cluster_name]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    with aws_errors_as(JobError, f"cannot find the instance of node {name}"):
        made: Any = boto3.client("ec2", region_name=jobs.cluster.region).describe_instances(Filters=filters)
    ids = [one["InstanceId"] for reservation in made["Reservations"] for one in reservation["Instances"]]
    if not ids:
        raise JobError(
            f"no running instance of {jobs.cluster.cluster_name} has the address {found[name].address} of node {name}"
        )
    return str(ids[0])


def _price(price: float | None) -> str:
    return "unknown" if price is None else f"{price:,.2f}"
