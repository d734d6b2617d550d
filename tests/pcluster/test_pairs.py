"""Pairs of keys, held against ParallelCluster's own validators and schema, without AWS."""

from __future__ import annotations

import json
from typing import Any

from sandbox.pcluster_validator import PCLUSTER_PYTHON
from tests.support import completed, need_pcluster
from trainium_cdk.description.checks.cluster_keys import PAIRS, Pair

SECTIONS = {
    "Scheduling.SlurmSettings": "SlurmSettingsSchema",
    "Scheduling.SlurmQueues.*.ComputeResources.*.CapacityReservationTarget": "CapacityReservationTargetSchema",
}
VALUES: dict[str, Any] = {
    "AccessPointId": "fsap-0123456789abcdef0",
    "AutoImportPolicy": "NEW",
    "AutomaticBackupRetentionDays": 1,
    "BackupId": "backup-0123456789abcdef0",
    "CapacityReservationId": "cr-0123456789abcdef0",
    "CapacityReservationResourceGroupArn": "arn:aws:resource-groups:us-east-1:111122223333:group/mine",
    "CopyTagsToBackups": True,
    "CustomSlurmSettings": [{"MaxJobCount": 5}],
    "CustomSlurmSettingsIncludeFile": "s3://bucket/slurm.conf",
    "DailyAutomaticBackupStartTime": "01:00",
    "DataCompressionType": "LZ4",
    "DataRepositoryAssociations": [],
    "Database": {"Uri": "db", "UserName": "slurm", "PasswordSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"},
    "DeletionPolicy": "Retain",
    "DeploymentType": "PERSISTENT_1",
    "DriveCacheType": "READ",
    "EbsSettings": {"Size": 40},
    "EfsSettings": {"Encrypted": True},
    "Encrypted": True,
    "ExportPath": "s3://bucket/out",
    "ExternalSlurmdbd": {"Host": "db"},
    "FileCacheSettings": {"FileCacheId": "fc-0123456789abcdef0"},
    "FileSystemId": "fs-0123456789abcdef0",
    "FsxLustreSettings": {"StorageCapacity": 1200},
    "FsxOntapSettings": {"VolumeId": "fsvol-0123456789abcdef0"},
    "FsxOpenZfsSettings": {"VolumeId": "fsvol-0123456789abcdef0"},
    "ImportPath": "s3://bucket/in",
    "ImportedFileChunkSize": 1024,
    "KmsKeyId": "12345678-1234-1234-1234-123456789012",
    "MungeKeySecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:munge",
    "PerUnitStorageThroughput": 50,
    "PerformanceMode": "generalPurpose",
    "ProvisionedThroughput": 100,
    "StorageCapacity": 1200,
    "StorageType": "SSD",
    "ThroughputMode": "bursting",
    "WeeklyMaintenanceStartTime": "1:01:00",
}  # fmt: skip
PROGRAM = """
import json, os, sys
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
from marshmallow import ValidationError
from pcluster.schemas import cluster_schema
from pcluster.validators.common import ValidatorContext
for name, document, source in json.load(sys.stdin):
    try:
        made = getattr(cluster_schema, name)().load(document)
    except ValidationError as e:
        print(json.dumps(["schema", str(e)]))
        continue
    if source != "schema":
        made._register_validators(ValidatorContext())
        made._validators = [one for one in made._validators if one[0].__name__ == source]
    said = [f for kind, given in made._validators for f in kind().execute(**given)] if source != "schema" else ""
    print(json.dumps([source if said else "", str(said)]))
"""


def section(*keys: str) -> dict[str, Any]:
    """A section with these keys, as they stand in pairs."""
    named = [key.partition(": ") for key in keys]
    return {
        name: json.loads(value) if value in ("true", "false") else value or VALUES[name] for name, _, value in named
    }


def document(pair: Pair, given: dict[str, Any]) -> tuple[str, dict[str, Any], str]:
    """What is loaded: the section in one of ParallelCluster's that is a document of its own."""
    if pair.section in SECTIONS:
        return SECTIONS[pair.section], given, pair.source
    if pair.section == "SharedStorage.*":
        return "SharedStorageSchema", {"Name": "x", "MountDir": "/x", "StorageType": "Efs", **given}, pair.source
    kind = pair.section.rpartition(".")[2]
    whole = {"Name": "x", "MountDir": "/x", "StorageType": kind.removesuffix("Settings"), kind: given}
    return "SharedStorageSchema", whole, pair.source


def wrong(pair: Pair) -> dict[str, Any]:
    if pair.section == "SharedStorage.*":
        return section(pair.key, "StorageType: Ebs" if pair.key != "EbsSettings" else "StorageType: Efs")
    return section(pair.key) if pair.how == "needs" else section(pair.key, pair.other)


def right(pair: Pair) -> dict[str, Any]:
    """The key with all that it needs."""
    needed = [p.other for p in PAIRS if (p.section, p.key, p.how) == (pair.section, pair.key, "needs")]
    return section(pair.key, *needed)


def test_parallelcluster_refuses_each_pair_and_takes_what_the_fix_says() -> None:
    need_pcluster()
    rows = [document(pair, given) for pair in PAIRS for given in (wrong(pair), right(pair))]
    done = completed([PCLUSTER_PYTHON, "-W", "ignore", "-c", PROGRAM], input=json.dumps(rows))
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == 2 * len(PAIRS)
    refused = {
        (p.section, p.key, p.other): tuple(text[:200])
        for p, text in zip(PAIRS, said[::2], strict=True)
        if text[0] != p.source
    }
    taken = {(p.section, p.key, p.other): text for p, text in zip(PAIRS, said[1::2], strict=True) if text[0]}
    assert refused == {}
    assert taken == {}
