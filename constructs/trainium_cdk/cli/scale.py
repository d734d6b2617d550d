"""`trn scale`: sets the number of nodes of an EKS node group."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainium_cdk.cli.options import EKS_STACK, EnvFile, Region, Stack, only
from trainium_cdk.cli.output import say
from trainium_cdk.engines import EKS
from trainium_cdk.errors import ScaleError


def scale(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the node group in the environment.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=0, help="Number of nodes.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the nodes run.")] = True,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds. Default: no limit.")] = None,
    stack: Stack = EKS_STACK,
    region: Region = None,
    _env: EnvFile = None,
) -> None:
    """Set the number of nodes of an EKS node group. A shortage of capacity is reported, and AWS keeps trying."""
    from trainium_cdk import engines, outputs
    from trainium_cdk._aws import aws_errors_as
    from trainium_cdk.cli.destroy import clients
    from trainium_cdk.operations import scale as scaling

    found = outputs.read(stack, region, EKS.name)
    if found.scales_itself:
        raise ScaleError(f"stack {stack} runs {engines.get(found.engine).title}, which {found.scales_itself}")
    cluster = only(outputs.EksCluster, found, EKS.title, EKS_STACK)
    client: Any = clients(cluster.region)
    with aws_errors_as(ScaleError, f"cannot scale {group}"):
        name = scaling.scale(cluster, group, nodes, client)
        say(f"node group {group}: requested {nodes} nodes")
        if wait:
            scaling.wait(lambda: scaling.progress(cluster, name, client), say, timeout=timeout)
