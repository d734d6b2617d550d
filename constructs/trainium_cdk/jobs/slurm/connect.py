"""The jobs of a deployed Slurm cluster."""

from __future__ import annotations

from collections.abc import Callable

from trainium_cdk.jobs.slurm.backend import SlurmBackend
from trainium_cdk.jobs.slurm.transport import LocalTransport, Transport, is_head_node
from trainium_cdk.outputs import SlurmCluster


def connect(
    cluster: SlurmCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`."""
    here = is_head_node(cluster) if local is None else local
    return SlurmBackend(cluster, LocalTransport() if here else lambda: _ssm(cluster, say))


def _ssm(cluster: SlurmCluster, say: Callable[[str], None] | None) -> Transport:
    from trainium_cdk.jobs.slurm.ssm import SsmTransport  # with boto3

    return SsmTransport.of(cluster, say)
