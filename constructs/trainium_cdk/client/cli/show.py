"""`trn show`, `clusters`, `token`: a deployed cluster, also for kubectl and other clients, all of an account, and the schema of the environment file."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.client.cli import named
from trainium_cdk.client.cli.app import SETTINGS
from trainium_cdk.client.cli.options import (
    DEFAULT_STACK,
    EKS_STACK,
    EnvFile,
    Json,
    Region,
    Stack,
    Target,
    kubernetes,
    on_cluster,
)
from trainium_cdk.client.cli.output import echo, echo_json, log, log_if_sandbox, table, with_sandbox, write_file
from trainium_cdk.client.jobs.quote import printed

show = typer.Typer(
    help="Show the environment file's schema, a deployed cluster, or its kubeconfig.",
    no_args_is_help=True,
    **SETTINGS,
)


@show.command()
def cluster(stack: Stack = DEFAULT_STACK, region: Region = None, _env: EnvFile = None) -> None:
    """Print what jobs need to know of a deployed stack.

    With `--cluster FILE`, other commands read it from a file, and do not ask for the stack's outputs. On EKS it also has, for other
    clients, what a pod requests and its launch variables (`pods`, by instance type).
    """
    from trainium_cdk.description import outputs

    found = outputs.read(stack, region)
    known = found.model_dump(mode="json")
    if found.containers:
        from trainium_cdk.client.jobs.kubernetes import objects

        known["pods"] = objects.pods_of_clients(found)
    echo_json(known)


@show.command()
def schema(
    job: Annotated[bool, typer.Option("--job", help="That of a job file, as `trn submit` takes it.")] = False,
) -> None:
    """Print the JSON schema of the environment file.

    Editors complete and check the file with it.
    """
    from trainium_cdk.client.cli import job_file
    from trainium_cdk.description import settings

    echo_json(job_file.json_schema() if job else settings.json_schema())


@on_cluster(stack=EKS_STACK, local=False)
def kubeconfig(
    on: Target,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file, which only you can read.")
    ] = None,
    tunnel: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Port of this machine for a tunnel to a private API, kept open until Ctrl-C. Default: no tunnel.",
        ),
    ] = 0,
) -> None:
    """Print a kubeconfig of the stack's cluster, for kubectl.

    It contains no secret: `trn` creates a token on request.
    """
    from trainium_cdk.client.jobs.kubernetes import access

    found = kubernetes(on).cluster
    endpoint = access.find(found)
    if tunnel:
        endpoint = access.reach(found, endpoint, port=tunnel)
    command = [shutil.which("trn") or "trn", "token", "--name", found.cluster_name, "--region", found.region]
    if found.access_role:
        command += ["--role", found.access_role]
    text = access.kubeconfig(found, endpoint, command)
    if output is None:
        echo(text, end="")
    else:
        write_file(output, text, 0o600)
        log(f"export KUBECONFIG={printed(output.resolve())}")
    if tunnel and endpoint.server_name:
        log(f"the tunnel at 127.0.0.1:{tunnel} is open; Ctrl-C ends it")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            log("\nthe tunnel is closed")


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


def token(
    name: Annotated[str, typer.Option(help="Name of the EKS cluster.")],
    region: Annotated[str, typer.Option(help="Its region.")],
    role: Annotated[str, typer.Option(help="Role to assume, if these credentials may.")] = "",
) -> None:
    """Print a token for an EKS cluster, in the format of kubectl's credential plug-ins."""
    from trainium_cdk.client.jobs.kubernetes.access import Identity

    echo(Identity(name, region, role=role).token().to_exec_credential())


show.command()(kubeconfig)
