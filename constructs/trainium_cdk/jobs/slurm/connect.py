"""The jobs of a deployed Slurm cluster."""

from __future__ import annotations

from collections.abc import Callable

from trainium_cdk.jobs.slurm.backend import SlurmBackend
from trainium_cdk.jobs.slurm.ssm import SsmTransport
from trainium_cdk.jobs.slurm.transport import LocalTransport, Transport, is_head_node
from trainium_cdk.outputs import SlurmCluster


def connect(
    cluster: SlurmCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`."""
    here = is_head_node(cluster) if local is None else local
    transport: Transport = LocalTransport() if here else SsmTransport.of(cluster, say)
    return SlurmBackend(cluster, transport)
