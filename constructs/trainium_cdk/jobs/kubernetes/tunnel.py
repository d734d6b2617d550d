"""A tunnel to a private Kubernetes API: a port of this machine, forwarded through the stack's bastion host by Session Manager."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.kubernetes.access import Endpoint
from trainium_cdk.jobs.sessions import TO_HOST, answers, forward, free_port
from trainium_cdk.outputs import EksCluster

_DIRECT_SECONDS = 3.0


def reach(cluster: EksCluster, endpoint: Endpoint, *, port: int = 0) -> Endpoint:
    """An endpoint that can be reached from here: the API itself, or the near end of a tunnel to it, which lasts as long as this
    process.

    Args:
        port: of this machine, for the tunnel. Default: a free one.

    Raises:
        TransportError: it cannot be reached, and no tunnel can be opened.
    """
    parts = urlsplit(endpoint.url)
    host, number = parts.hostname or "", parts.port or 443
    if cluster.endpoint != "private" or answers(host, number, _DIRECT_SECONDS):
        return endpoint
    if not cluster.bastion_host_id:
        raise TransportError(
            f"the Kubernetes API of {cluster.cluster_name} is private, cannot be reached from here, and {cluster.stack} has no "
            "bastion host. Work from inside its VPC, or deploy with eks.bastion_host"
        )
    port = port or free_port()
    forward(cluster.bastion_host_id, cluster.region, TO_HOST, {"host": host, "portNumber": str(number)}, port)
    return replace(endpoint, url=f"https://127.0.0.1:{port}", server_name=host)
