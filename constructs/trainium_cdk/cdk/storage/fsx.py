"""An FSx for Lustre file system, optionally linked to S3."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from constructs import Construct, DependencyGroup

from trainium_cdk.cdk.helpers.stack_wide import StackPart, place_of
from trainium_cdk.cdk.storage.options import FileSystemMount, Placement
from trainium_cdk.description.settings import DataRepository, ExistingFsx, Fsx

LUSTRE_VERSION = "2.15"
_IMPORTED = ["NEW", "CHANGED", "DELETED"]
_EXPORTED = ["NEW", "CHANGED"]
"""Not DELETED: a file that is deleted, perhaps to make room, would delete its object."""


class LustreFileSystem(StackPart):
    """Lustre 2.15 on SSD, in one subnet: the fleet's."""

    def __init__(self, scope: Construct, id: str, settings: Fsx, placement: Placement) -> None:
        super().__init__(scope, id)
        key, persistent = placement.encryption_key, settings.deployment != "SCRATCH_2"
        file_system = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.capacity_gib,
            subnet_ids=[placement.subnets[0].subnet_id],
            security_group_ids=[placement.security_group.security_group_id],
            kms_key_id=key.key_arn if key and persistent else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=settings.deployment,
                per_unit_storage_throughput=settings.effective_throughput,
                data_compression_type="LZ4" if settings.compression else "NONE",
                automatic_backup_retention_days=settings.backup_days if persistent else None,
                copy_tags_to_backups=True if settings.backup_days else None,
                metadata_configuration=_metadata(settings),
            ),
        )
        # FSx refuses a group that does not allow Lustre among its servers. Not for rules of clients, which are added later: a client may
        # wait for the file system
        file_system.node.add_dependency(*placement.security_group.node.children)
        file_system.apply_removal_policy(placement.removal_policy)
        self.ready = DependencyGroup(file_system)
        associations: list[fsx.CfnDataRepositoryAssociation] = []
        for link in settings.s3_links:
            made = self._associate(file_system, link)
            if associations:  # FSx makes one at a time
                made.node.add_dependency(associations[-1])
            associations.append(made)
        self.ready.add(*associations)
        self.mount = FileSystemMount(
            kind="fsx",
            id=file_system.ref,
            mount_dir=settings.mount_dir,
            dns_name=file_system.attr_dns_name,
            mount_name=file_system.attr_lustre_mount_name,
        )

    def _associate(self, file_system: fsx.CfnFileSystem, s3: DataRepository) -> fsx.CfnDataRepositoryAssociation:
        association = fsx.CfnDataRepositoryAssociation
        return association(
            self,
            f"S3{s3.directory.replace('/', '-')}",
            file_system_id=file_system.ref,
            file_system_path=s3.directory,
            data_repository_path=s3.uri,
            batch_import_meta_data_on_create=True,
            s3=association.S3Property(
                auto_import_policy=association.AutoImportPolicyProperty(events=_IMPORTED) if s3.auto_import else None,
                auto_export_policy=association.AutoExportPolicyProperty(events=_EXPORTED) if s3.auto_export else None,
            ),
        )


def _metadata(settings: Fsx) -> fsx.CfnFileSystem.MetadataConfigurationProperty | None:
    iops = settings.metadata_iops
    if iops is None:
        return None
    if iops == "automatic":
        return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="AUTOMATIC")
    return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="USER_PROVISIONED", iops=float(iops))


def from_settings(scope: Construct, id: str, existing: ExistingFsx) -> fsx.IFileSystem | str:
    """An existing file system; its id alone, if its security group is not to be changed."""
    if not existing.security_group:
        return existing.id
    group = ec2.SecurityGroup.from_security_group_id(
        scope, f"{id}ExistingFsxGroup", existing.security_group, allow_all_outbound=False
    )
    return fsx.LustreFileSystem.from_lustre_file_system_attributes(
        scope,
        f"{id}ExistingFsx",
        file_system_id=existing.id,
        dns_name="",  # not read: it follows from the id
        security_group=group,
    )


def mount_of(
    scope: Construct, given: fsx.IFileSystem | str, mount_dir: str, mount_name: str | None = None
) -> FileSystemMount:
    """An existing file system, or its id.

    Raises:
        ValueError: its mount name is not known.
    """
    if isinstance(given, fsx.LustreFileSystem):
        mount_name = mount_name or given.mount_name
    if mount_name is None:
        raise ValueError(f"{scope.node.path}: give lustre_mount_name, the mount name of the file system in FSx")
    file_system_id = given if isinstance(given, str) else given.file_system_id
    place = place_of(scope)
    dns_name = f"{file_system_id}.fsx.{place.region}.{place.url_suffix}"
    return FileSystemMount("fsx", file_system_id, mount_dir, dns_name, mount_name, owned=False)
