"""Options of new file systems, and what nodes need to mount any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3


@dataclass(frozen=True)
class EfsOptions:
    """A new EFS file system.

    Attributes:
        throughput_mode: Default: ELASTIC, which costs nothing while idle.
        provisioned_throughput_per_second: Only with PROVISIONED; charged also while idle. Default: none.
        backups: Daily AWS Backup. Default: False.
    """

    throughput_mode: efs.ThroughputMode = efs.ThroughputMode.ELASTIC
    provisioned_throughput_per_second: Size | None = None
    backups: bool = False


@dataclass(frozen=True)
class S3Link:
    """Objects of a bucket that an FSx for Lustre file system shows as files.

    Attributes:
        bucket: The bucket; FSx reads it with its own service-linked role.
        prefix: Only objects below it. Default: all.
        directory: Where in the file system they appear. Default: /data; with SCRATCH_2 and PERSISTENT_1 the root, where it is the only link and
            exports nothing automatically.
        auto_import: New and changed objects appear as files, and files of deleted objects disappear. Default: True.
        auto_export: New and changed files are written to the bucket; deleting a file deletes no object. Default: False.
    """

    bucket: s3.IBucket
    prefix: str = ""
    directory: str | None = None
    auto_import: bool = True
    auto_export: bool = False

    @property
    def uri(self) -> str:
        """`s3://bucket/prefix`; it may be a CDK token."""
        return f"s3://{self.bucket.bucket_name}" + (f"/{self.prefix}" if self.prefix else "")


@dataclass(frozen=True)
class LustreOptions:
    """A new FSx for Lustre file system.

    Attributes:
        deployment_type: SCRATCH_2 for temporary data (no replication), PERSISTENT_2 for data to keep. Default: SCRATCH_2.
        capacity: 1200 GiB, or a multiple of 2400 GiB. Default: 1200 GiB.
        throughput_per_tib: MB/s for each TiB: PERSISTENT_1 50, 100 or 200; PERSISTENT_2 125, 250, 500 or 1000. Default: the
            lowest.
        compression: LZ4. Default: True.
        backup_retention: How long daily backups are kept (persistent types without `s3`). Default: no backups.
        s3: A bucket whose objects appear as files. Default: none.
        s3_links: Further buckets or prefixes, each with a directory of its own. Default: none.
        metadata_iops: Operations on files and directories per second (PERSISTENT_2 only): `automatic` by the capacity, or 1500, 3000, 6000, or
            a multiple of 12000 up to 192000. Default: FSx's own, which cannot be raised later.
        efa: Whether its servers have EFA (PERSISTENT_2 only, in steps of 38400, 19200, 9600 or 4800 GiB by the throughput). Each node needs
            AWS's set-up of its Lustre client for it, and FSx excludes trn2; other clients use TCP. Default: False.
    """

    deployment_type: fsx.LustreDeploymentType = fsx.LustreDeploymentType.SCRATCH_2
    capacity: Size | None = None
    throughput_per_tib: int | None = None
    compression: bool = True
    backup_retention: Duration | None = None
    s3: S3Link | None = None
    s3_links: Sequence[S3Link] = ()
    metadata_iops: Literal["automatic"] | int | None = None
    efa: bool = False

    @property
    def links_root(self) -> bool:
        """Whether the one link is an import path of the file system, and not an association: the way of the older types, which a change
        would replace."""
        link = self.s3
        if link is None or self.s3_links or self.deployment_type == fsx.LustreDeploymentType.PERSISTENT_2:
            return False
        return not (link.directory or link.auto_export)

    @property
    def capacity_gib(self) -> float:
        return self.capacity.to_gibibytes() if self.capacity else 1200

    @property
    def backup_days(self) -> float:
        return self.backup_retention.to_days() if self.backup_retention else 0

    @property
    def persistent(self) -> bool:
        return self.deployment_type not in {fsx.LustreDeploymentType.SCRATCH_1, fsx.LustreDeploymentType.SCRATCH_2}


@dataclass(frozen=True)
class Placement:
    """What new file systems of any kind need to know.

    Attributes:
        mount_dir: Where every node mounts it.
        subnets: In each of them (EFS), or in the first (Lustre).
        security_group: Of its servers.
        encryption_key: None for the service's own.
        removal_policy: For its data on `cdk destroy`.
    """

    mount_dir: str
    subnets: Sequence[ec2.ISubnet]
    security_group: ec2.ISecurityGroup
    encryption_key: kms.IKey | None
    removal_policy: RemovalPolicy


@dataclass(frozen=True)
class FileSystemMount:
    """A file system for nodes. All strings but `kind` and `mount_dir` may be CDK tokens.

    Attributes:
        kind: "efs" or "fsx" (for Lustre).
        id: The file system's id, `fs-...`.
        mount_dir: Where every node mounts it.
        dns_name: The host that serves it.
        mount_name: Lustre's name for it; empty for EFS.
        owned: Whether the stack created it.
    """

    kind: Literal["efs", "fsx"]
    id: str
    mount_dir: str
    dns_name: str
    mount_name: str = ""
    owned: bool = True
