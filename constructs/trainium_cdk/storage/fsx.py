"""An FSx for Lustre file system, perhaps linked to S3."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup

from trainium_cdk import settings as trn
from trainium_cdk.removal import OnDestroy, removal_policy
from trainium_cdk.storage.mounts import FileSystemMount

# Lustre: requests, and the connections servers and clients make to each other (FSx for Lustre user guide, access control)
PORTS = (ec2.Port.tcp(988), ec2.Port.tcp_range(1018, 1023))
LUSTRE_VERSION = "2.15"
_IMPORT = ["NEW", "CHANGED", "DELETED"]


class LustreFileSystem(Construct):
    """Lustre 2.15 on SSD, in one subnet: the fleet's."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.Fsx,
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        encryption_key: kms.IKey | None,
        on_destroy: OnDestroy,
    ) -> None:
        super().__init__(scope, id)
        persistent = settings.deployment != "SCRATCH_2"
        s3 = settings.s3
        links_root = s3 is not None and settings.deployment != "PERSISTENT_2"
        file_system = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=settings.capacity_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[security_group.security_group_id],
            kms_key_id=encryption_key.key_arn if encryption_key and persistent else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=settings.deployment,
                per_unit_storage_throughput=settings.effective_throughput,
                data_compression_type="LZ4" if settings.compression else "NONE",
                automatic_backup_retention_days=settings.backup_days if persistent else None,
                copy_tags_to_backups=True if settings.backup_days else None,
                import_path=s3.uri if s3 and links_root else None,
                auto_import_policy=_auto_import(s3) if s3 and links_root else None,
            ),
        )
        file_system.apply_removal_policy(removal_policy(on_destroy))
        self.ready = DependencyGroup(file_system)
        if s3 and not links_root:
            self.ready.add(self._associate(file_system, s3))
        self.mount = FileSystemMount(
            kind="fsx",
            id=file_system.ref,
            mount_dir=settings.mount_dir,
            dns_name=file_system.attr_dns_name,
            mount_name=file_system.attr_lustre_mount_name,
        )

    def _associate(self, file_system: fsx.CfnFileSystem, s3: trn.DataRepository) -> fsx.CfnDataRepositoryAssociation:
        association = fsx.CfnDataRepositoryAssociation
        return association(
            self,
            "S3",
            file_system_id=file_system.ref,
            file_system_path=s3.directory,
            data_repository_path=s3.uri,
            batch_import_meta_data_on_create=True,
            s3=association.S3Property(
                auto_import_policy=association.AutoImportPolicyProperty(events=_IMPORT) if s3.auto_import else None,
                auto_export_policy=association.AutoExportPolicyProperty(events=_IMPORT) if s3.auto_export else None,
            ),
        )


def _auto_import(s3: trn.DataRepository) -> str:
    return "NEW_CHANGED_DELETED" if s3.auto_import else "NONE"
