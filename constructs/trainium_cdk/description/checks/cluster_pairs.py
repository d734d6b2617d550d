"""Keys of a cluster configuration that ParallelCluster takes only together, or not together; and lines of slurm.conf that it sets itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from trainium_cdk.description.catalog.models import ParallelClusterFacts
from trainium_cdk.description.checks.controlled import QUEUE, RESOURCE, places, value_at
from trainium_cdk.description.checks.rule import error
from trainium_cdk.problems import Problem


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
