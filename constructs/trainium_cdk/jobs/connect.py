"""From a stack's name to a back end that runs jobs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainium_cdk import outputs
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.slurm import SlurmBackend
from trainium_cdk.jobs.transport import LocalTransport, SsmTransport, Transport, is_head_node

if TYPE_CHECKING:
    from trainium_cdk.jobs.kubernetes import Api, KubernetesBackend

DEFAULT_STACK = "TrnPclusterStack"


def connect(
    stack: str = DEFAULT_STACK,
    region: str | None = None,
    *,
    local: bool | None = None,
    cluster: outputs.Cluster | None = None,
    tell: Callable[[str], None] | None = None,
) -> SlurmBackend | KubernetesBackend:
    """The jobs of a deployed stack, by whichever scheduler it has.

    Args:
        stack: its name in CloudFormation.
        region: default: boto3's usual one.
        local: run commands on this machine, which is the head node, instead of through SSM. Default: found out. Slurm only.
        cluster: its description, where it is known already; the stack's outputs are not read then.
        tell: is given a line where AWS does not answer for a while. Slurm only.

    Raises:
        trainium_cdk.errors.OutputsError: the stack cannot be read.
        TransportError: no region, or no credentials.
        TrnError: `local` is given for a stack without a head node.
    """
    found = cluster or outputs.read(stack, region)
    if isinstance(found, outputs.EksCluster):
        from trainium_cdk.jobs.kubernetes import KubernetesBackend

        if local:
            raise TrnError(f"stack {found.stack} runs Kubernetes: it has no head node to be on. Leave --local out")
        return KubernetesBackend(found, lambda: kubernetes_api(found))
    here = is_head_node(found) if local is None else local
    transport: Transport = LocalTransport() if here else SsmTransport.of(found, tell)
    return SlurmBackend(found, transport)


def kubernetes_api(cluster: outputs.EksCluster) -> Api:
    """The Kubernetes API of a cluster, with the credentials of AWS.

    Raises:
        TransportError: it cannot be reached.
    """
    from trainium_cdk.jobs.kubernetes import Api, access, tunnel

    endpoint = tunnel.reach(cluster, access.find(cluster))
    return Api(endpoint, access.Identity.of(cluster), cluster.namespace)
