"""Connecting to a Slurm cluster: to the head node, or to the login node of AWS PCS, which is found by its tag; through Systems Manager, or from the
machine itself. Only what goes through Systems Manager loads boto3."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainium_cdk.client.jobs.slurm.backend import SlurmBackend
from trainium_cdk.client.jobs.slurm.transport import INTERVAL, LocalTransport, Result, Transport, is_head_node
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.description.outputs.slurm import GROUP_TAG, PcsCluster
from trainium_cdk.errors import TransportError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.slurm.ssm import SsmTransport


def connect(
    cluster: SlurmCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`."""
    here = is_head_node(cluster) if local is None else local
    if here:
        return SlurmBackend(of_caller(cluster), LocalTransport())

    def over_run_command() -> Transport:
        from trainium_cdk.client.jobs.slurm.ssm import SsmTransport  # with boto3, which a dry run does not need

        return SsmTransport.of(cluster, say)

    return SlurmBackend(cluster, over_run_command)


def of_caller(cluster: SlurmCluster) -> SlurmCluster:
    """The cluster as the user who runs this process sees it, on a machine of the cluster with several users. Administrators there, and Session
    Manager's own user, have no jobs."""
    import getpass

    name = getpass.getuser()
    is_person = os.getuid() >= 1000 and name not in ("ssm-user", cluster.image_user)
    return cluster.of_user(name) if cluster.users and not cluster.for_person and is_person else cluster


def connect_pcs(
    cluster: PcsCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`; on a login node, give `local`: it is not detected."""
    if local:
        return SlurmBackend(of_caller(cluster), LocalTransport())
    return SlurmBackend(cluster, LoginNodeTransport(cluster, say))


class LoginNodeTransport:
    """Runs scripts on the running login node, through SSM. It is looked up again after a failure: PCS may have replaced it."""

    interval = INTERVAL

    def __init__(self, cluster: PcsCluster, say: Callable[[str], None] | None = None):
        self._cluster, self._say = cluster, say
        self._ssm: SsmTransport | None = None

    @property
    def instance(self) -> str:
        return login_node(self._cluster)

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        with self._node() as node:
            return node.run(script, timeout, private)

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        with self._node() as node:
            return node.ask(cluster, request, timeout, private)

    @contextmanager
    def _node(self) -> Iterator[SsmTransport]:
        if self._ssm is None:
            from trainium_cdk.client.jobs.slurm.ssm import SsmTransport

            node = login_node(self._cluster)
            self._ssm = SsmTransport.of(self._cluster.model_copy(update={"head_node_id": node}), self._say)
        try:
            yield self._ssm
        except TransportError:
            self._ssm = None
            raise


def login_node(cluster: PcsCluster) -> str:
    """EC2 instance id of the login node that has run longest.

    Raises:
        TransportError: none runs, or EC2 cannot be queried.
    """
    from trainium_cdk.client.jobs.slurm.ssm import find_instances

    filters = {f"tag:{GROUP_TAG}": cluster.login_group_id, "instance-state-name": "running"}
    nodes = find_instances(cluster.region, "the login node", filters)
    if not nodes:
        raise TransportError(
            f"no login node of {cluster.cluster_name} is running (node group {cluster.login_group_id}): PCS starts one within minutes. "
            "If none comes, read the group's errors: aws pcs get-compute-node-group --cluster-identifier "
            f"{cluster.cluster_id} --compute-node-group-identifier {cluster.login_group_id} --region {cluster.region}"
        )
    return str(min(nodes, key=lambda node: node["LaunchTime"])["InstanceId"])
