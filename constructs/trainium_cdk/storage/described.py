"""Conversion between the `storage` section of an environment and the arguments of `TrnStorage`."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3
from constructs import Construct

import trainium_cdk.checks.storage as storage
from trainium_cdk import settings as trn
from trainium_cdk._cdk.rules import Arguments, known
from trainium_cdk.storage.options import EfsOptions, LustreOptions, S3Link

_NAMES = {
    "fsx": "lustre",
    "deployment": "deployment_type",
    "capacity_gib": "capacity",
    "throughput": "throughput_mode",
    "provisioned_mibps": "provisioned_throughput_per_second",
    "backup_days": "backup_retention",
    "fsx.deployment": "lustre.deployment_type",
    "fsx.capacity_gib": "lustre.capacity",
    "fsx.throughput": "lustre.throughput_per_tib",
    "fsx.backup_days": "lustre.backup_retention",
    "fsx.mount_dir": "lustre_mount_dir",
    "efs.mount_dir": "efs_mount_dir",
    "efs.throughput": "efs.throughput_mode",
    "efs.provisioned_mibps": "efs.provisioned_throughput_per_second",
}


def efs_of(scope: Construct, id: str, settings: trn.Efs | None) -> EfsOptions | efs.IFileSystem | str | None:
    """The EFS file system of an environment, as an argument of `TrnStorage`."""
    if settings is None:
        return None
    if existing := settings.existing:
        if not existing.security_group:
            return existing.id
        return efs.FileSystem.from_file_system_attributes(
            scope,
            f"{id}ExistingEfs",
            file_system_id=existing.id,
            security_group=_group(scope, f"{id}ExistingEfsGroup", existing.security_group),
        )
    mibps = settings.provisioned_mibps
    return EfsOptions(
        throughput_mode=efs.ThroughputMode[settings.throughput.upper()],
        provisioned_throughput_per_second=Size.mebibytes(mibps) if mibps else None,
        backups=settings.backups,
    )


def lustre_of(scope: Construct, id: str, settings: trn.Fsx | None) -> LustreOptions | fsx.IFileSystem | str | None:
    """The FSx for Lustre file system of an environment, as an argument of `TrnStorage`."""
    if settings is None:
        return None
    if existing := settings.existing:
        if not existing.security_group:
            return existing.id
        return fsx.LustreFileSystem.from_lustre_file_system_attributes(
            scope,
            f"{id}ExistingFsx",
            file_system_id=existing.id,
            dns_name="",  # not read: it follows from the id
            security_group=_group(scope, f"{id}ExistingFsxGroup", existing.security_group),
        )
    links = [_link(scope, id, link) for link in settings.links]
    first = links.pop(0) if settings.s3 else None
    return LustreOptions(
        deployment_type=fsx.LustreDeploymentType[settings.deployment],
        capacity=Size.gibibytes(settings.capacity_gib),
        throughput_per_tib=settings.effective_throughput,
        compression=settings.compression,
        backup_retention=Duration.days(settings.backup_days) if settings.backup_days else None,
        s3=first,
        s3_links=links,
        metadata_iops=settings.metadata_iops,
        efa=settings.efa,
    )


def _link(scope: Construct, id: str, link: trn.DataRepository) -> S3Link:
    bucket, _, prefix = link.uri.removeprefix("s3://").partition("/")
    name = (
        f"{id}LinkedBucket"
        if scope.node.try_find_child(f"{id}LinkedBucket") is None
        else f"{id}LinkedBucket-{bucket}-{prefix}"
    )
    return S3Link(
        bucket=s3.Bucket.from_bucket_name(scope, name, bucket),
        prefix=prefix,
        directory=link.directory if "directory" in link.model_fields_set else None,
        auto_import=link.auto_import,
        auto_export=link.auto_export,
    )


def check_storage(construct: Construct, efs: object, efs_mount_dir: str, lustre: object, lustre_mount_dir: str) -> None:
    """Register problems of the arguments of a `TrnStorage`; tokens and existing file systems are not checked."""
    described: dict[str, Any] = {"efs": None, "fsx": None}
    if efs is not None:
        described["efs"] = known({"mount_dir": efs_mount_dir})
    if isinstance(efs, EfsOptions):
        size = efs.provisioned_throughput_per_second
        if not (size and size.is_unresolved()):  # mode and size are checked together
            mibps = int(size.to_mebibytes()) if size else None
            described["efs"] |= known({"throughput": efs.throughput_mode.value.lower(), "provisioned_mibps": mibps})
    if lustre is not None:
        described["fsx"] = known({"mount_dir": lustre_mount_dir})
    if isinstance(lustre, LustreOptions):
        capacity, retention = lustre.capacity, lustre.backup_retention
        described["fsx"] |= known(
            {
                "deployment": lustre.deployment_type.value,
                "capacity_gib": int(lustre.capacity_gib) if capacity and not capacity.is_unresolved() else None,
                "throughput": lustre.throughput_per_tib,
                "metadata_iops": lustre.metadata_iops,
                "efa": lustre.efa,
                "backup_days": int(lustre.backup_days) if retention and not retention.is_unresolved() else None,
            }
        )
        if lustre.s3:
            described["fsx"]["s3"] = _described(lustre.s3, 0)
        described["fsx"]["s3_links"] = [_described(link, i) for i, link in enumerate(lustre.s3_links, 1)]
    rules = [rule for rule in storage.RULES if rule is not storage.data_kept]
    Arguments(construct, ("storage",), _NAMES).check({"storage": described}, rules)


def _described(link: S3Link, number: int) -> dict[str, Any]:
    """A link as an environment has it. The bucket's name is nearly always a token, and no rule looks at it."""
    given = {"uri": f"s3://bucket-{number}", "auto_import": link.auto_import, "auto_export": link.auto_export}
    return given | known({"directory": link.directory})


def _group(scope: Construct, id: str, group_id: str) -> ec2.ISecurityGroup:
    return ec2.SecurityGroup.from_security_group_id(scope, id, group_id, allow_all_outbound=False)
