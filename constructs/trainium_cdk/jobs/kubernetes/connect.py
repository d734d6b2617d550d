"""The jobs of a deployed EKS cluster."""

from __future__ import annotations

from collections.abc import Callable

from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.kubernetes import access, tunnel
from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.kubernetes.backend import KubernetesBackend
from trainium_cdk.outputs import EksCluster


def connect(
    cluster: EksCluster,
    *,
    local: bool | None = None,
    say: Callable[[str], None] | None = None,  # noqa: ARG001
) -> KubernetesBackend:
    """Arguments and errors as of `jobs.connect`."""
    if local:
        raise TrnError(f"stack {cluster.stack} runs Kubernetes and has no head node. Remove --local")
    return KubernetesBackend(cluster, lambda: kubernetes_api(cluster))


def kubernetes_api(cluster: EksCluster) -> Api:
    """The Kubernetes API of a cluster, with the credentials of AWS.

    Raises:
        TransportError: it cannot be reached.
    """
    endpoint = tunnel.reach(cluster, access.find(cluster))
    return Api(endpoint, access.Identity.of(cluster), cluster.namespace)
