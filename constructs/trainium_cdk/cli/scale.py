"""`trn scale`: how many nodes a node group of EKS has."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainium_cdk.cli.common import EKS_STACK, EnvFile, Region, Stack, only, say
from trainium_cdk.engines.eks import EksEngine
from trainium_cdk.errors import ScaleError


def register(app: typer.Typer) -> None:
    app.command()(scale)


def scale(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Node group, as the environment names it.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=0, help="How many it should have.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they run.")] = True,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds. Default: as long as it takes.")] = None,
    stack: Stack = EKS_STACK,
    region: Region = None,
    _env: EnvFile = None,
) -> None:
    """Give a node group of EKS more or fewer nodes. A shortage of capacity is told and waited for; it costs the cluster nothing."""
    from botocore.exceptions import BotoCoreError, ClientError

    from trainium_cdk import engines, outputs
    from trainium_cdk._aws import describe_error
    from trainium_cdk.cli.destroy import clients
    from trainium_cdk.operations import scale as scaling

    found = outputs.read(stack, region)
    if how := engines.get(found.engine).scales_itself:
        raise ScaleError(f"stack {stack} runs {engines.get(found.engine).title}, which {how}")
    cluster = only(outputs.EksCluster, found, EksEngine.title, EKS_STACK)
    client: Any = clients(cluster.region)
    try:
        name = scaling.scale(cluster, group, nodes, client)
        say(f"node group {group} is asked to have {nodes} nodes")
        if wait:
            scaling.wait(lambda: scaling.progress(cluster, name, client), say, timeout=timeout)
    except (ClientError, BotoCoreError) as e:
        raise ScaleError(f"cannot scale {group}: {describe_error(e)}") from None
