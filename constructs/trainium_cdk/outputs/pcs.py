"""What `TrnPcsStack` exports."""

from typing import TYPE_CHECKING, ClassVar

from trainium_cdk.outputs.contract import Exports, Keys, export
from trainium_cdk.outputs.slurm import SlurmCluster, fleets, of_nodes

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment

GROUP_TAG = "aws:pcs:compute-node-group-id"
"""Tag of PCS's instances: the id of their node group."""


class PcsCluster(SlurmCluster):
    """A deployed cluster of AWS PCS, as the jobs see it. It has no head node: a login node is found when it is needed."""

    keys: ClassVar[Keys] = {
        **{key: value for key, value in SlurmCluster.keys.items() if key != "HeadNodeId"},
        "ClusterId": ("cluster_id", "Id of the cluster in AWS PCS"),
        "LoginGroupId": (
            "login_group_id",
            f"Id of the node group of the login node, which carries it in its tag {GROUP_TAG}",
        ),
    }
    shares_ssh_keys: ClassVar[bool] = False
    engine: str = "pcs"
    head_node_id: str = ""
    cluster_id: str
    login_group_id: str
    """Id of the node group of the login node."""

    @property
    def identity(self) -> str:
        return self.cluster_id


def pcs_venv(env: "Environment") -> str:
    """The virtual environment: homes are not shared, so that one without a path is on the shared file system."""
    venv = env.bootstrap.venv
    return venv if venv.startswith("/") else f"{env.storage.shared_dir}/{venv}"


def pcs_outputs(
    env: "Environment", *, cluster_id: str, login_group_id: str, bucket: str, registry_uri: str = ""
) -> Exports:
    """What the stack of an environment exports. The arguments may be CDK tokens; the rest is plain text."""
    values = {
        "cluster_name": env.pcs_cluster_name,
        "cluster_id": cluster_id,
        "login_group_id": login_group_id,
        "venv": pcs_venv(env),
        **of_nodes(env, "pcs", bucket=bucket, registry_uri=registry_uri),
    }
    return export("pcs", PcsCluster.keys, values, fleets(env, "pcs"))
