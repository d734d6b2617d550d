"""Shared storage: owned by the stack, so that it outlives any cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from trainium_cdk.settings.base import MountDir, S3Uri, SecurityGroupId, Settings
from trainium_cdk.settings.problems import wrong

EfsId = Annotated[str, StringConstraints(pattern=r"^fs-[0-9a-f]{8,17}$")]
FsxDeployment = Literal["SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"]
# MB/s for each TiB, by deployment type (SSD): FSx for Lustre API reference, 2026-11
FSX_THROUGHPUT: dict[FsxDeployment, tuple[int, ...]] = {
    "SCRATCH_2": (),
    "PERSISTENT_1": (50, 100, 200),
    "PERSISTENT_2": (125, 250, 500, 1000),
}


class ExistingEfs(Settings):
    """An EFS file system that exists already, with mount targets in the VPC."""

    id: EfsId
    """As fs-0123456789abcdef0."""
    security_group: SecurityGroupId | None = None
    """Its mount targets' group: gets a rule that lets the cluster in. Default: it lets the cluster in already."""


class Efs(Settings):
    """An EFS file system."""

    mount_dir: MountDir = "/efs"
    """Where nodes mount it."""
    throughput: Literal["elastic", "provisioned", "bursting"] = "elastic"
    """How throughput is had. `elastic` costs nothing while idle; provisioned is paid by the MiB/s, idle or not."""
    provisioned_mibps: int | None = Field(None, ge=1, le=3414)
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
    """An S3 prefix that an FSx for Lustre file system shows as files."""

    uri: S3Uri
    """s3://bucket/prefix"""
    directory: MountDir = "/data"
    """Where in the file system it appears (PERSISTENT_2 only; SCRATCH_2 and PERSISTENT_1 link their root)."""
    auto_import: bool = True
    """New and changed objects appear as files by themselves."""
    auto_export: bool = False
    """New and changed files are written back to S3 by themselves (PERSISTENT_2 only)."""


class ExistingFsx(Settings):
    """An FSx for Lustre file system that exists already in the VPC."""

    id: EfsId
    """As fs-0123456789abcdef0."""
    mount_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,8}$")]
    """Its mount name, as FSx shows it."""
    security_group: SecurityGroupId | None = None
    """Its group: gets rules that let the cluster in. Default: it lets the cluster in already."""


class Fsx(Settings):
    """An FSx for Lustre file system."""

    mount_dir: MountDir = "/fsx"
    """Where nodes mount it."""
    deployment: FsxDeployment = "SCRATCH_2"
    """SCRATCH_2 for temporary data (no replication), PERSISTENT_2 for data to keep."""
    capacity_gib: int = 1200
    """1200, or a multiple of 2400 GiB."""
    throughput: int | None = None
    """MB/s for each TiB: PERSISTENT_1 50, 100 or 200; PERSISTENT_2 125, 250, 500 or 1000 (default: the lowest)."""
    compression: bool = True
    """LZ4 compression."""
    backup_days: int = Field(0, ge=0, le=90)
    """How long daily backups are kept (persistent types only); 0 = none."""
    s3: DataRepository | None = None
    existing: ExistingFsx | None = None

    @model_validator(mode="after")
    def _pairs(self) -> Fsx:
        if self.capacity_gib != 1200 and (self.capacity_gib <= 0 or self.capacity_gib % 2400):
            near = max(2400, round(self.capacity_gib / 2400) * 2400)
            raise wrong(
                f"capacity_gib is {self.capacity_gib}: FSx for Lustre comes in 1200 or multiples of 2400 GiB",
                f"write 1200 or {near}",
            )
        steps = FSX_THROUGHPUT[self.deployment]
        if self.throughput is not None and self.throughput not in steps:
            fix = f"write one of {', '.join(map(str, steps))}" if steps else "remove throughput, or choose PERSISTENT_2"
            raise wrong(f"throughput {self.throughput} does not exist for {self.deployment}", fix)
        if self.deployment == "SCRATCH_2" and self.backup_days:
            raise wrong("SCRATCH_2 has no backups", "set backup_days: 0, or choose PERSISTENT_2")
        if self.s3 and self.backup_days:
            raise wrong("a file system linked to S3 has no backups: S3 is the copy", "set backup_days: 0, or remove s3")
        if self.s3 and self.s3.auto_export and self.deployment != "PERSISTENT_2":
            raise wrong(
                f"{self.deployment} cannot export to S3 by itself", "choose PERSISTENT_2, or auto_export: false"
            )
        return self

    @property
    def effective_throughput(self) -> int | None:
        """MB/s for each TiB as it is asked of FSx; None for SCRATCH_2, which has one."""
        steps = FSX_THROUGHPUT[self.deployment]
        return self.throughput or (steps[0] if steps else None)


class Storage(Settings):
    """The file systems every node mounts. The first that is there (EFS, else FSx) is where jobs live."""

    efs: Efs | None = Efs()
    fsx: Fsx | None = None

    @model_validator(mode="after")
    def _some_and_apart(self) -> Storage:
        if self.efs is None and self.fsx is None:
            raise wrong("neither efs nor fsx: multi-node jobs need one shared file system", "keep efs, or give fsx")
        if self.efs and self.fsx:
            a, b = f"{self.efs.mount_dir}/", f"{self.fsx.mount_dir}/"
            if a.startswith(b) or b.startswith(a):
                raise wrong(
                    f"efs and fsx mount over each other ({a[:-1]} and {b[:-1]})", "choose two separate mount_dir"
                )
        return self

    @property
    def mount_dirs(self) -> tuple[str, ...]:
        return tuple(s.mount_dir for s in (self.efs, self.fsx) if s)

    @property
    def shared_dir(self) -> str:
        """Where jobs, environments and data live by default."""
        return self.mount_dirs[0]


class Registry(Settings):
    """The ECR repository for training images."""

    enabled: bool = True
    """Whether there is one."""
    keep_images: int = Field(50, ge=1, le=1000)
    """Older images beyond this number are removed."""
    immutable_tags: bool = True
    """A tag names one image for ever."""
