"""The jobs of a deployed Slurm cluster."""

from __future__ import annotations

import os
from collections.abc import Callable

from trainium_cdk.jobs.slurm.backend import SlurmBackend
from trainium_cdk.jobs.slurm.transport import LocalTransport, Transport, is_head_node
from trainium_cdk.outputs import SlurmCluster


def connect(
    cluster: SlurmCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`."""
    here = is_head_node(cluster) if local is None else local
    if here:
        return SlurmBackend(of_caller(cluster), LocalTransport())

    def over_run_command() -> Transport:
        from trainium_cdk.jobs.slurm.ssm import SsmTransport  # with boto3, which a dry run does not need

        return SsmTransport.of(cluster, say)

    return SlurmBackend(cluster, over_run_command)


def of_caller(cluster: SlurmCluster) -> SlurmCluster:
    """The cluster as the user who runs this process sees it, on a machine of the cluster with several users. Session Manager's own user has
    no account on the nodes."""
    import getpass

    name = getpass.getuser()
    is_person = os.getuid() >= 1000 and name != "ssm-user"
    return cluster.of_user(name) if cluster.users and not cluster.for_person and is_person else cluster
