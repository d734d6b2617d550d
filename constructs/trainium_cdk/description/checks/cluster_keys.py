"""Keys of a cluster configuration: those that a setting controls, and those that ParallelCluster takes only together, or not together.

The node scripts, the rules and `trn` go by the setting alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple

from trainium_cdk.description.catalog.models import ParallelClusterFacts
from trainium_cdk.description.checks.rule import error
from trainium_cdk.problems import Problem

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


class Pair(NamedTuple):
    """Two keys of one section.

    Attributes:
        section: where it is, `*` for each item of a list.
        key: with `: VALUE` only where it has this value.
        how: what the key does with the other.
        other: as `key`.
        source: ParallelCluster's validator, or `schema` for a check of its cluster_schema.py (3.16.1).
        setting: what sets the other key in an environment, if not an override does.
    """

    section: str
    key: str
    how: Literal["needs", "excludes"]
    other: str
    source: str
    setting: str = ""


_SLURM, _EFS, _LUSTRE = "Scheduling.SlurmSettings", "SharedStorage.*.EfsSettings", "SharedStorage.*.FsxLustreSettings"
PAIRS = (
    Pair(_SLURM, "ExternalSlurmdbd", "needs", "MungeKeySecretArn", "ExternalSlurmdbdRequiresCustomMungeKey"),
    Pair(_SLURM, "ExternalSlurmdbd", "excludes", "Database", "ExternalSlurmdbdVsDatabaseIncompatibility", "pcluster.accounting"),
    Pair(_SLURM, "CustomSlurmSettingsIncludeFile", "excludes", "CustomSlurmSettings", "CustomSlurmSettingsIncludeFileOnlyValidator", "pcluster.slurm_settings"),
    Pair(_EFS, "IamAuthorization: true", "needs", "EncryptionInTransit: true", "EfsMountOptionsValidator"),
    Pair(_EFS, "AccessPointId", "needs", "EncryptionInTransit: true", "EfsAccessPointOptionsValidator"),
    Pair(_EFS, "AccessPointId", "needs", "FileSystemId", "EfsAccessPointOptionsValidator"),
    Pair(_EFS, "KmsKeyId", "needs", "Encrypted: true", "KmsKeyIdEncryptedValidator"),
    Pair("SharedStorage.*.EbsSettings", "KmsKeyId", "excludes", "Encrypted: false", "KmsKeyIdEncryptedValidator"),
    Pair(_EFS, "ProvisionedThroughput", "needs", "ThroughputMode: provisioned", "schema"),
    Pair(_EFS, "ThroughputMode: provisioned", "needs", "ProvisionedThroughput", "schema"),
    *(
        Pair(_EFS, key, "excludes", "FileSystemId", "schema")
        for key in ("Encrypted", "KmsKeyId", "PerformanceMode", "ThroughputMode", "ProvisionedThroughput", "DeletionPolicy")
    ),
    *(
        Pair(_LUSTRE, key, "excludes", "FileSystemId", "schema")
        for key in ("AutoImportPolicy", "AutomaticBackupRetentionDays", "BackupId", "CopyTagsToBackups", "DailyAutomaticBackupStartTime",
          "DataCompressionType", "DataRepositoryAssociations", "DeletionPolicy", "DeploymentType", "DriveCacheType", "ExportPath", "ImportPath",
          "ImportedFileChunkSize", "KmsKeyId", "PerUnitStorageThroughput", "StorageCapacity", "StorageType", "WeeklyMaintenanceStartTime")
    ),
    *(
        Pair(_LUSTRE, key, "excludes", "BackupId", "schema")
        for key in ("DeploymentType", "ExportPath", "ImportPath", "ImportedFileChunkSize", "KmsKeyId", "PerUnitStorageThroughput", "StorageCapacity")
    ),
    *(
        Pair("SharedStorage.*", f"{kind}Settings", "needs", f"StorageType: {kind}", "schema")
        for kind in ("Ebs", "Efs", "FsxLustre", "FsxOpenZfs", "FsxOntap", "FileCache")
    ),
    Pair(f"{RESOURCE}.CapacityReservationTarget", "CapacityReservationId", "excludes", "CapacityReservationResourceGroupArn", "schema"),
)  # fmt: skip


def pair_faults(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Pairs that ParallelCluster refuses in a cluster configuration; `key` is the path in it."""
    for pair in PAIRS:
        for path in places(config, pair.section.split(".")):
            section = value_at(config, path)
            if not isinstance(section, Mapping) or not _has(section, pair.key):
                continue
            key, other = pair.key.partition(":")[0], pair.setting or pair.other
            if pair.how == "needs" and not _has(section, pair.other):
                yield error(
                    (*path, key), f"ParallelCluster takes {key} only with {other}", f"add {other}, or remove it"
                )
            elif pair.how == "excludes" and _has(section, pair.other):
                yield error(
                    (*path, key), f"ParallelCluster does not take {key} together with {other}", f"remove it, or {other}"
                )


def _has(section: Mapping[str, Any], key: str) -> bool:
    name, _, value = key.partition(": ")
    given = section.get(name)
    return str(given).lower() == value.lower() if value else given is not None


def denied_lines(config: Mapping[str, Any], facts: ParallelClusterFacts) -> Iterator[Problem]:
    """Parameters of slurm.conf that ParallelCluster sets itself (its CustomSlurmSettingsValidator)."""
    accounting = _has(config["Scheduling"].get("SlurmSettings") or {}, "Database")
    for pattern, denied in (
        (f"{_SLURM}.CustomSlurmSettings.*", facts.denied_slurm_settings),
        (f"{_SLURM}.CustomSlurmSettings.*", facts.denied_slurm_settings_with_accounting if accounting else ()),
        (f"{QUEUE}.CustomSlurmSettings", facts.denied_slurm_settings_of_queue),
        (f"{RESOURCE}.CustomSlurmSettings", facts.denied_slurm_settings_of_resource),
    ):
        for path in places(config, pattern.split(".")):
            line = value_at(config, path)
            if isinstance(line, Mapping) and (len(line) == 1 or path[-1] == "CustomSlurmSettings"):
                for name in (name for name in line if name.lower() in denied):
                    reason = f"ParallelCluster sets {name} itself and rejects another value"
                    yield error((*path, name), reason, "remove it", value=line[name])
