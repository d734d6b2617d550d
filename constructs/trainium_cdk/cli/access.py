"""`trn show kubeconfig`, `token`: the cluster for kubectl and other clients."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.cli.options import EKS_STACK, Target, kubernetes, on_cluster
from trainium_cdk.cli.output import echo, log, write_file
from trainium_cdk.jobs.quote import printed


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
    from trainium_cdk.jobs.kubernetes import access

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


def token(
    name: Annotated[str, typer.Option(help="Name of the EKS cluster.")],
    region: Annotated[str, typer.Option(help="Its region.")],
    role: Annotated[str, typer.Option(help="Role to assume, if these credentials may.")] = "",
) -> None:
    """Print a token for an EKS cluster, in the format of kubectl's credential plug-ins."""
    from trainium_cdk.jobs.kubernetes.access import Identity

    echo(Identity(name, region, role=role).token().to_exec_credential())
