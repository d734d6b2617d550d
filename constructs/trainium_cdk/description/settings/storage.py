"""Shared storage. The stack owns it, so that it is kept when a cluster is replaced."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trainium_cdk.description.settings.base import (
    FromDays,
    FromGibibytes,
    FromMebibytes,
    FromMember,
    FromWord,
    MaybeNumberToken,
    MountDir,
    S3Uri,
    SecurityGroupId,
    Settings,
    SharedDir,
    is_number_token,
)
from trainium_cdk.problems import wrong
from trainium_cdk.text import Text, is_placeholder

EfsId = Annotated[str, Text(r"^fs-[0-9a-f]{8,17}$", "the ID of an EFS file system", "fs-0123456789abcdef0")]
FsxDeployment = Literal["SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"]
# MB/s for each TiB, by deployment type (SSD): FSx for Lustre API reference, 2026-11
FSX_THROUGHPUT: dict[FsxDeployment, tuple[int, ...]] = {
    "SCRATCH_2": (),
    "PERSISTENT_1": (50, 100, 200),
    "PERSISTENT_2": (125, 250, 500, 1000),
}
FSX_METADATA_IOPS = (1500, 3000, 6000, *range(12000, 192001, 12000))
"""For a PERSISTENT_2 file system on SSD (FSx API reference, CreateFileSystemLustreMetadataConfiguration, 2026-11)."""
SERVER_PORTS = {
    "efs": [("tcp", 2049)],
    "fsx-lustre": [("tcp", 988)],
    "fsx-openzfs": [(protocol, port) for protocol in ("tcp", "udp") for port in (111, 2049, 20001, 20002, 20003)],
    "fsx-ontap": [(protocol, port) for protocol in ("tcp", "udp") for port in (111, 635, 2049, 4046)],
}
"""Type of a file system -> protocols and ports without which ParallelCluster refuses it (FSX_PORTS of aws-parallelcluster 3.16.1)."""
FSX_LINKS = 8
"""Links of one file system (FSx API reference, CreateDataRepositoryAssociation, 2026-11)."""


class ExistingEfs(Settings):
    """An existing EFS file system with mount targets in the VPC."""

    id: EfsId
    """File system id, for example fs-0123456789abcdef0."""
    security_group: SecurityGroupId | None = None
    """Security group of its mount targets. It gets a rule that allows access from the cluster. Default: access is
    already allowed."""


class Efs(Settings):
    """An EFS file system."""

    mount_dir: SharedDir = "/efs"
    """Where nodes mount it."""
    throughput: Annotated[Literal["elastic", "provisioned", "bursting"], FromWord] = "elastic"
    """Throughput mode. `elastic` costs nothing while idle; `provisioned` is charged by the MiB/s, even while idle."""
    provisioned_mibps: Annotated[Annotated[int, Field(ge=1, le=3414)] | None, MaybeNumberToken, FromMebibytes] = None
    """MiB/s, with `throughput: provisioned`."""
    backups: bool = False
    """Daily AWS Backup of the file system."""
    existing: ExistingEfs | None = None

    @model_validator(mode="after")
    def _throughput_pair(self) -> Efs:
        if self.throughput == "provisioned" and self.provisioned_mibps is None:
            raise wrong("throughput is provisioned, but provisioned_mibps is not given", "add provisioned_mibps: 1024")
        if self.throughput != "provisioned" and self.provisioned_mibps is not None:
            raise wrong(
                f"provisioned_mibps is given, but throughput is {self.throughput}",
                "write throughput: provisioned, or remove provisioned_mibps",
            )
        return self


class DataRepository(Settings):
    """An S3 prefix whose objects appear as files in an FSx for Lustre file system."""

    uri: S3Uri
    """s3://bucket/prefix"""
    directory: MountDir = "/data"
    """Directory of the file system in which it appears."""
    auto_import: bool = True
    """Import new and changed objects as files automatically, and remove the files of deleted objects."""
    auto_export: bool = False
    """Export new and changed files to S3 automatically. Deleting a file deletes no object."""


class ExistingFsx(Settings):
    """An existing FSx for Lustre file system in the VPC."""

    id: EfsId
    """File system id, for example fs-0123456789abcdef0."""
    mount_name: Annotated[
        str,
        Text(
            r"^[A-Za-z0-9_-]{1,8}$", "the file system's mount name: 1 to 8 letters, digits, _ and hyphens", "abcdef12"
        ),
    ]
    """The mount name that FSx shows for it."""
    security_group: SecurityGroupId | None = None
    """Its security group. It gets rules that allow access from the cluster. Default: access is already allowed."""


class Fsx(Settings):
    """An FSx for Lustre file system."""

    mount_dir: SharedDir = "/fsx"
    """Where nodes mount it."""
    deployment: Annotated[FsxDeployment, FromMember] = "SCRATCH_2"
    """SCRATCH_2 for temporary data (no replication), PERSISTENT_2 for data to keep."""
    capacity_gib: Annotated[int, MaybeNumberToken, FromGibibytes] = 1200
    """1200, or a multiple of 2400 GiB."""
    throughput: int | None = None
    """MB/s for each TiB: PERSISTENT_1 50, 100 or 200; PERSISTENT_2 125, 250, 500 or 1000 (default: the lowest)."""
    compression: bool = True
    """LZ4 compression."""
    backup_days: Annotated[int, Field(ge=0, le=90), MaybeNumberToken, FromDays] = 0
    """How many days daily backups are kept (persistent types only); 0 = no backups."""
    s3_links: tuple[DataRepository, ...] = ()
    """S3 prefixes whose objects appear as files, each in its own directory; at most 8."""
    metadata_iops: Literal["automatic"] | int | None = None
    """How many operations on files and directories per second (PERSISTENT_2 only): `automatic` by the capacity, or 1500, 3000, 6000, or a
    multiple of 12000 up to 192000. Default: FSx's own, which cannot be raised later."""
    existing: ExistingFsx | None = None

    @model_validator(mode="after")
    def _pairs(self) -> Fsx:
        known = not is_number_token(self.capacity_gib)
        if known and self.capacity_gib != 1200 and (self.capacity_gib <= 0 or self.capacity_gib % 2400):
            near = max(2400, round(self.capacity_gib / 2400) * 2400)
            raise wrong(
                f"capacity_gib is {self.capacity_gib}: FSx for Lustre has 1200 GiB or a multiple of 2400 GiB",
                f"write 1200 or {near}",
            )
        steps = FSX_THROUGHPUT[self.deployment]
        if self.throughput is not None and self.throughput not in steps:
            fix = f"write one of {', '.join(map(str, steps))}" if steps else "remove throughput, or choose PERSISTENT_2"
            raise wrong(f"{self.deployment} does not offer a throughput of {self.throughput}", fix)
        if self.deployment == "SCRATCH_2" and self.backup_days:
            raise wrong("SCRATCH_2 has no backups", "set backup_days: 0, or choose PERSISTENT_2")
        if self.s3_links and self.backup_days:
            raise wrong("a file system linked to S3 cannot have backups", "set backup_days: 0, or remove s3_links")
        return self

    @model_validator(mode="after")
    def _only_persistent_2(self) -> Fsx:
        iops = self.metadata_iops
        if iops and self.deployment != "PERSISTENT_2":
            raise wrong(
                f"{self.deployment} does not offer metadata_iops", "remove metadata_iops, or choose PERSISTENT_2"
            )
        if isinstance(iops, int) and iops not in FSX_METADATA_IOPS:
            near = min(FSX_METADATA_IOPS, key=lambda one: abs(one - iops))
            raise wrong(f"metadata_iops is {iops}, which FSx does not offer", f"write {near}, or automatic")
        return self

    @model_validator(mode="after")
    def _links_are_apart(self) -> Fsx:
        links = self.s3_links
        if len(links) > FSX_LINKS:
            raise wrong(f"{len(links)} links to S3: FSx has at most {FSX_LINKS}", "combine prefixes under a common one")
        for kind, values in (("directory", [x.directory for x in links]), ("uri", [x.uri for x in links])):
            for i, one in enumerate(values):
                for other in values[:i]:
                    a, b = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
                    if not is_placeholder(a + b) and (a.startswith(b) or b.startswith(a)):
                        raise wrong(
                            f"two links to S3 overlap ({kind} {other} and {one})", f"give each link a {kind} of its own"
                        )
        return self

    @property
    def effective_throughput(self) -> int | None:
        """Requested MB/s for each TiB; None for SCRATCH_2, which has no choice."""
        steps = FSX_THROUGHPUT[self.deployment]
        return self.throughput or (steps[0] if steps else None)


class Storage(Settings):
    """The file systems that every node mounts. Job files are on EFS, or on FSx if there is no EFS."""

    efs: Efs | None = Efs.model_construct()
    fsx: Fsx | None = None

    @model_validator(mode="after")
    def _some_and_apart(self) -> Storage:
        if self.efs is None and self.fsx is None:
            raise wrong("neither efs nor fsx is set: multi-node jobs need a shared file system", "set efs or fsx")
        if self.efs and self.fsx:
            a, b = f"{self.efs.mount_dir}/", f"{self.fsx.mount_dir}/"
            if a.startswith(b) or b.startswith(a):
                raise wrong(
                    f"the mount directories overlap ({a[:-1]} and {b[:-1]})",
                    "choose two mount_dir values, neither of them below the other",
                )
        return self

    @property
    def mount_dirs(self) -> tuple[str, ...]:
        return tuple(s.mount_dir for s in (self.efs, self.fsx) if s)

    @property
    def shared_dir(self) -> str:
        """The default place of job files, virtual environments and data."""
        return self.mount_dirs[0]


class Registry(Settings):
    """The ECR repository for training images."""

    enabled: bool = True
    """Whether it is created."""
    keep_images: int = Field(default=50, ge=1, le=1000)
    """Number of images to keep. Older ones are deleted."""
    immutable_tags: bool = True
    """A tag cannot be moved to another image."""
