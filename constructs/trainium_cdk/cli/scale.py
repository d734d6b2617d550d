"""`trn nodes scale`: sets the number of nodes of an EKS node group."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.cli.options import EKS_STACK, EnvFile, Region, Stack, only
from trainium_cdk.cli.output import log
from trainium_cdk.engines import EKS
from trainium_cdk.errors import TransportError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.outputs import EksCluster


def scale(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the node group in the environment.")],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=0, help="Number of nodes.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the nodes run.")] = True,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds. Default: no limit.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="End nodes with running jobs, too, if too few are idle.")
    ] = False,
    stack: Stack = EKS_STACK,
    region: Region = None,
    _env: EnvFile = None,
) -> None:
    """Set the number of nodes of an EKS node group.

    A smaller number ends idle nodes only. A shortage of capacity is reported, and AWS
    keeps trying.
    """
    from trainium_cdk import engines, outputs
    from trainium_cdk._aws import aws_errors_as, clients
    from trainium_cdk.operations import scale as scaling

    found = outputs.read(stack, region, EKS.name)
    if found.scales_itself:
        raise TrnError(f"stack {stack} runs {engines.get(found.engine).title}, which {found.scales_itself}")
    cluster = only(outputs.EksCluster, found, EKS.title, EKS_STACK)
    client: Any = clients(cluster.region)
    with aws_errors_as(TrnError, f"cannot scale {group}"):
        name = scaling.scale(cluster, group, nodes, client, busy=lambda name: _busy(cluster, name, force), force=force)
        log(f"node group {group}: requested {counted(nodes, 'node')}")
        if wait:
            scaling.wait(lambda: scaling.progress(cluster, name, client), log, timeout=timeout)


def _busy(cluster: EksCluster, nodegroup: str, force: bool) -> set[str]:
    """Names of the nodes in use by any team: a node group is theirs together."""
    from trainium_cdk.jobs.kubernetes.backend import kubernetes_api
    from trainium_cdk.operations import scale as scaling

    found = set[str]()
    for team, seen in {"": cluster, **cluster.of_teams()}.items():
        try:
            with contextlib.closing(kubernetes_api(seen)) as api:
                found |= scaling.busy(api, nodegroup)
        except TransportError as error:
            if not force:
                whose = f" by team {team}" if team else ""
                raise TrnError(
                    f"cannot see which nodes are in use{whose}: {error}. Connect, use credentials that may list the pods, or end any node "
                    "with --force"
                ) from None
    return found
