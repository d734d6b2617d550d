"""The jobs of a deployed cluster of AWS PCS: the same scripts, run on its login node, which is found by its tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainium_cdk.client.jobs.slurm.backend import SlurmBackend, of_caller
from trainium_cdk.client.jobs.slurm.ssm import SsmTransport
from trainium_cdk.client.jobs.slurm.transport import LocalTransport, Result
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.description.outputs.slurm import GROUP_TAG, PcsCluster
from trainium_cdk.errors import TransportError


def connect(
    cluster: PcsCluster, *, local: bool | None = None, say: Callable[[str], None] | None = None
) -> SlurmBackend:
    """Arguments and errors as of `jobs.connect`; on a login node, give `local`: it is not detected."""
    if local:
        return SlurmBackend(of_caller(cluster), LocalTransport())
    return SlurmBackend(cluster, LoginNodeTransport(cluster, say))


class LoginNodeTransport:
    """Runs scripts on the running login node, through SSM. It is looked up again after a failure: PCS may have replaced it."""

    interval = SsmTransport.interval

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
    from trainium_cdk.client.jobs.slurm.instances import find

    filters = {f"tag:{GROUP_TAG}": cluster.login_group_id, "instance-state-name": "running"}
    nodes = find(cluster.region, "the login node", filters)
    if not nodes:
        raise TransportError(
            f"no login node of {cluster.cluster_name} is running (node group {cluster.login_group_id}): PCS starts one within minutes. "
            "If none comes, read the group's errors: aws pcs get-compute-node-group --cluster-identifier "
            f"{cluster.cluster_id} --compute-node-group-identifier {cluster.login_group_id} --region {cluster.region}"
        )
    return str(min(nodes, key=lambda node: node["LaunchTime"])["InstanceId"])
