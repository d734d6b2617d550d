"""Keys of a cluster configuration that a setting controls: the node scripts, the rules and `trn` go by the setting alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

Path = tuple[str | int, ...]

QUEUE, POOL = "Scheduling.SlurmQueues.*", "LoginNodes.Pools.*"
RESOURCE = f"{QUEUE}.ComputeResources.*"
_QUEUES, _RESOURCES = "pcluster.queues[]", "pcluster.queues[].compute_resources[]"

CONTROLLED = {
    "Tags": "tags",
    "Image.CustomAmi": "pcluster.custom_ami",
    "HeadNode.InstanceType": "pcluster.head.instance_type",
    "HeadNode.Image.CustomAmi": "pcluster.head.custom_ami",
    "HeadNode.LocalStorage.RootVolume.Size": "pcluster.head.root_volume_gib",
    "HeadNode.Networking.SubnetId": "network and pcluster.head.subnet",
    "HeadNode.Networking.ElasticIp": "pcluster.head.subnet or pcluster.head.elastic_ip",
    "HeadNode.Ssh.AllowedIps": "pcluster.head.ssh.from_cidrs",
    "HeadNode.Ssh.KeyName": "pcluster.head.ssh.key_name",
    "Scheduling.SlurmSettings.ScaledownIdletime": "pcluster.scale_down_idle_minutes",
    "Scheduling.SlurmSettings.Database": "pcluster.accounting",
    f"{QUEUE}.CapacityType": f"{_QUEUES}.capacity_type",
    f"{QUEUE}.ComputeSettings.LocalStorage.RootVolume.Size": f"{_QUEUES}.root_volume_gib",
    f"{QUEUE}.ComputeSettings.LocalStorage.EphemeralVolume.MountDir": f"{_QUEUES}.local_storage_dir",
    f"{QUEUE}.Networking.SubnetIds": "network and pcluster.queues[].zone_id",
    f"{QUEUE}.Networking.PlacementGroup": f"{_QUEUES}.placement_group",
    f"{QUEUE}.Image.CustomAmi": f"{_QUEUES}.custom_ami",
    f"{RESOURCE}.MinCount": f"{_RESOURCES}.min_nodes",
    f"{RESOURCE}.MaxCount": f"{_RESOURCES}.max_nodes",
    f"{RESOURCE}.Efa.Enabled": f"{_RESOURCES}.efa",
    f"{RESOURCE}.DisableSimultaneousMultithreading": f"{_RESOURCES}.hyperthreads",
    f"{RESOURCE}.CapacityReservationTarget": f"{_RESOURCES}.reservation",
    f"{RESOURCE}.Networking.PlacementGroup": f"{_QUEUES}.placement_group",
    f"{POOL}.InstanceType": "pcluster.login_nodes.instance_type",
    f"{POOL}.Networking.SubnetIds": "pcluster.login_nodes.subnet",
    "DeploymentSettings.DisableSudoAccessForDefaultUser": "pcluster.sudo",
    "Monitoring.Logs.CloudWatch.RetentionInDays": "log_days",
    "Monitoring.Dashboards.CloudWatch.Enabled": "pcluster.dashboard",
}
"""Path, `*` for each item of a list -> its setting, as for Trainium queues. An override of the key is a warning.

Login nodes' `Count` is not here: only an override can set it to 0.
"""

_OF_NODES = ("HeadNode", QUEUE, POOL)
CANNOT = {
    "Region": ("the stack's other resources are in its region", "use region"),
    "Image.Os": (
        "the node scripts install Neuron for the system of pcluster.os, on Ubuntu 22.04 and 24.04 and Amazon Linux 2023 alone",
        "use pcluster.os",
    ),
    "Scheduling.Scheduler": ("only Slurm is supported", "remove it"),
    "Scheduling.SlurmSettings.CustomSlurmSettings.*.ClusterName": (
        "Slurm has the cluster's name, and its controller stops if it changes",
        "use pcluster.cluster_name",
    ),
    **{
        f"{nodes}.CustomActions.{action}": (
            "the stack's own script is here, and installs what training needs",
            "use bootstrap.scripts for scripts that run after it, or OnNodeStart for one that runs before",
        )
        for nodes in _OF_NODES
        for action in ("OnNodeConfigured", "OnNodeUpdated")
    },
    **{
        f"{nodes}.Iam.{key}": (
            "another role has none of the stack's permissions",
            "add policies with Iam.AdditionalIamPolicies",
        )
        for nodes in _OF_NODES
        for key in ("InstanceRole", "InstanceProfile")
    },
    **{
        f"{nodes}.Networking.SecurityGroups": (
            "ParallelCluster does not take it together with AdditionalSecurityGroups, where the stack's own are",
            "use Networking.AdditionalSecurityGroups",
        )
        for nodes in _OF_NODES
    },
}
"""Path -> why the stack does not work with another value, and what to do instead. An override of the key is an error."""


def places(data: Any, pattern: Sequence[str]) -> Iterator[Path]:
    """The paths that a pattern matches: * is each item of a list. A null matches for what it removes."""
    if not pattern or data is None:
        yield ()
        return
    first, *rest = pattern
    if first == "*":
        steps: Iterable[str | int] = range(len(data)) if isinstance(data, list | tuple) else ()
    else:
        steps = [first] if isinstance(data, Mapping) and first in data else []
    for step in steps:
        yield from ((step, *more) for more in places(data[step], rest))


def value_at(data: Any, path: Iterable[str | int]) -> Any:
    """The value at a path."""
    return reduce(lambda found, step: found[step], path, data)
