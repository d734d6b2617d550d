"""Outputs of `TrnPclusterStack` and `TrnPcsStack`."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from trainium_cdk.description.outputs.contract import (
    COMMON_KEYS,
    ClusterOutputs,
    Exports,
    Fleet,
    Keys,
    block_of,
    export,
)
from trainium_cdk.errors import OutputsError
from trainium_cdk.runner import PEOPLE as PEOPLE

if TYPE_CHECKING:
    from trainium_cdk.description.settings import CpuQueue, Environment

_USER = re.compile(r"(?!root$)[A-Za-z_][A-Za-z0-9_.@-]{0,63}")
JOBS_USER = "trn-jobs"
"""Account on all nodes that runs the jobs of no user in particular: without password, sudo and any login."""


class SlurmCluster(ClusterOutputs):
    """A deployed Slurm cluster, as the jobs see it."""

    keys: ClassVar[Keys] = {
        **COMMON_KEYS,
        "HeadNodeId": (
            "head_node_id",
            "EC2 instance id of the head node. For a shell there: aws ssm start-session --target ID",
        ),
        "JobUser": ("job_user", "Linux user on the nodes that runs the jobs"),
        "ImageUser": ("image_user", "Linux user of the nodes' image, for administrators"),
        "Os": ("os", "Operating system of the nodes"),
        "Venv": ("venv", "Python virtual environment of the jobs, on the nodes"),
        "Users": ("users", "Where the users of the cluster come from: local or directory"),
        "CpuNodes": ("cpu", "For the command trn: nodes without Trainium, which prepare data for jobs"),
    }
    version_fix = "Deploy with another bootstrap: {neuron_release: ...}, or replace the node if its driver differs"

    engine: str = "slurm"
    head_node_id: str
    """EC2 instance id: where SSM sends the commands."""
    job_user: str
    """The user that jobs belong to."""
    image_user: str = "ubuntu"
    """The image's own user: administrators are that user, and no job is."""
    venv: str
    """The virtual environment: a path, a name in the user's home directory, or ~USER/NAME in another user's."""

    @property
    def identity(self) -> str:
        """Identifier that a later cluster of the same name does not have. Jobs record it."""
        return self.head_node_id

    @property
    def for_person(self) -> bool:
        """True if it is seen as one of its users, and not as the account of jobs without a user."""
        return self.folder.startswith(f"{PEOPLE}/")

    def of_user(self, name: str) -> Self:
        """The cluster as one of its users sees it.

        Raises:
            OutputsError: it has no users, or the name cannot be one's.
        """
        if name == self.job_user:
            return self
        if not self.users:
            raise OutputsError(
                f"all jobs of {self.stack} belong to {self.job_user}. Remove --user {name[:80]}, or deploy an environment with `users`"
            )
        if name == self.image_user or not _USER.fullmatch(name):
            raise OutputsError(f"{name[:80]!r} cannot be the name of a user of {self.stack}. Correct --user")
        venv = self.venv if self.venv.startswith("/") else f"~{self.image_user}/{self.venv}"
        return self.model_copy(update={"job_user": name, "folder": f"{PEOPLE}/{name}", "venv": venv})

    shares_ssh_keys: ClassVar[bool] = True
    """ParallelCluster lets the image's user log in to every node from the head node."""


def slurm_outputs(env: "Environment", *, head_node_id: str, bucket: str, registry_uri: str = "") -> Exports:
    """Return the outputs of an environment's stack. The arguments may be CDK tokens; the rest is plain text."""
    values = {"cluster_name": env.cluster_name, "head_node_id": head_node_id, "venv": env.bootstrap.venv}
    values |= of_nodes(env, "slurm", bucket=bucket, registry_uri=registry_uri)
    return export("slurm", SlurmCluster.keys, values, (*fleets(env), *_own_partitions(env)))


def of_nodes(env: "Environment", engine: str, *, bucket: str, registry_uri: str) -> Mapping[str, str]:
    """The outputs that any Slurm cluster has: what its nodes are and mount."""
    section = env.slurm_sections[engine]
    name = section.os
    os = env.catalog.parallelcluster.operating_systems[name]
    return {
        "cpu": "".join(_cpu_fleet(queue).text for queue in section.cpu_queues),
        "job_user": JOBS_USER,
        "image_user": os.user,
        "users": section.several_users,
        "shared_dir": env.storage.shared_dir,
        "mount_dirs": ",".join((*env.storage.mount_dirs, *section.mount_dirs)),
        "os": name,
        "kernel": os.kernel,
        "neuron_driver": env.release.dkms,
        "neuron_release": env.release.version,
        "framework": env.framework,
        "bucket": bucket,
        "registry_uri": registry_uri,
        "health": env.jobs.health.actions,
        **env.jobs.addresses,
    }


def _cpu_fleet(queue: "CpuQueue") -> Fleet:
    return Fleet(
        queue=queue.name,
        resource=queue.name,
        instance_type=queue.instance_type,
        nodes=queue.max_nodes,
        devices=0,
        cores=1,
        efa=0,
        family=queue.instance_type.partition(".")[0],
    )


def fleets(env: "Environment", engine: str = "slurm") -> tuple[Fleet, ...]:
    """The fleets of the queues of one Slurm engine, first queue first."""
    return tuple(
        Fleet(
            queue=queue.name,
            resource=resource.name,
            instance_type=resource.instance_type,
            nodes=resource.max_nodes,
            devices=(kind := env.catalog.instance(resource.instance_type)).neuron_devices,
            cores=kind.logical_cores(),
            efa=kind.efa_of(resource.efa),
            family=kind.family,
            ultraserver=kind.ultraserver or 0,
            capacity_type=queue.capacity_type,
            reservation=block_of(queue.capacity_type, resource.reservation),
        )
        for queue in env.slurm_sections[engine].queues
        for resource in queue.compute_resources
    )


def _own_partitions(env: "Environment") -> Iterator[Fleet]:
    """The fleets of your own partitions in slurm.conf, which have nodes of queues."""
    p = env.pcluster
    scheduling = (p.overrides.get("Scheduling") or {}).get("SlurmSettings") or {}
    given = (*p.slurm_settings, *(scheduling.get("CustomSlurmSettings") or ()))
    lines = [{key.lower(): str(value) for key, value in line.items()} for line in given]
    sets = {line["nodeset"]: line for line in lines if "nodeset" in line}
    for line in (line for line in lines if line.get("partitionname", "DEFAULT").upper() != "DEFAULT"):
        for fleet in (*fleets(env), *map(_cpu_fleet, p.cpu_queues)):
            if nodes := _nodes_in(line, fleet, sets):
                yield fleet.model_copy(update={"queue": line["partitionname"], "home": fleet.queue, "nodes": nodes})


def _nodes_in(line: Mapping[str, str], fleet: Fleet, sets: Mapping[str, Mapping[str, str]]) -> int:
    """How many nodes of a fleet are in a partition or a node set, by the names and features that ParallelCluster gives to nodes."""
    from trainium_cdk.runner.slurm import hostnames  # slow, and for your own partitions alone

    names = set(hostnames(line.get("nodes", "")))
    if names & {"ALL", f"{fleet.queue}_nodes"} or line.get("feature") in (fleet.resource, fleet.instance_type):
        return fleet.nodes
    own = re.compile(rf"{re.escape(fleet.queue)}-(st|dy)-{re.escape(fleet.resource)}-\d+")
    found = sum(1 if own.fullmatch(name) else _nodes_in(sets.get(name, {}), fleet, {}) for name in names)
    return min(found, fleet.nodes)


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
    """Return the outputs of an environment's stack. The arguments may be CDK tokens; the rest is plain text."""
    values = {
        "cluster_name": env.pcs_cluster_name,
        "cluster_id": cluster_id,
        "login_group_id": login_group_id,
        "venv": pcs_venv(env),
        **of_nodes(env, "pcs", bucket=bucket, registry_uri=registry_uri),
    }
    return export("pcs", PcsCluster.keys, values, fleets(env, "pcs"))
