"""An FSx for Lustre file system, optionally linked to S3."""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import Stack
from aws_cdk import aws_fsx as fsx
from constructs import Construct, DependencyGroup

from trainium_cdk.settings.storage import FSX_THROUGHPUT
from trainium_cdk.storage.options import FileSystemMount, LustreOptions, Placement, S3Link

LUSTRE_VERSION = "2.15"
DIRECTORY = "/data"
"""Of a link that names none."""
_IMPORTED = ["NEW", "CHANGED", "DELETED"]
_EXPORTED = ["NEW", "CHANGED"]
"""Not DELETED: a file that is deleted, perhaps to make room, would delete its object."""


class LustreFileSystem(Construct):
    """Lustre 2.15 on SSD, in one subnet: the fleet's."""

    def __init__(self, scope: Construct, id: str, options: LustreOptions, placement: Placement) -> None:
        super().__init__(scope, id)
        kind, s3, key = options.deployment_type.value, options.s3, placement.encryption_key
        steps = next((steps for name, steps in FSX_THROUGHPUT.items() if name == kind), ())
        file_system = fsx.CfnFileSystem(
            self,
            "Resource",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=options.capacity_gib,
            subnet_ids=[placement.subnets[0].subnet_id],
            security_group_ids=[placement.security_group.security_group_id],
            kms_key_id=key.key_arn if key and options.persistent else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=kind,
                per_unit_storage_throughput=options.throughput_per_tib or (steps[0] if steps else None),
                data_compression_type="LZ4" if options.compression else "NONE",
                automatic_backup_retention_days=options.backup_days if options.persistent else None,
                copy_tags_to_backups=True if options.backup_days else None,
                efa_enabled=True if options.efa else None,
                metadata_configuration=_metadata(options),
                import_path=s3.uri if s3 and options.links_root else None,
                auto_import_policy=("NEW_CHANGED_DELETED" if s3.auto_import else "NONE")
                if s3 and options.links_root
                else None,
            ),
        )
        # FSx refuses a group that does not allow Lustre among its servers. Not for rules of clients, which are added later: a client may
        # wait for the file system
        file_system.node.add_dependency(*placement.security_group.node.children)
        file_system.apply_removal_policy(placement.removal_policy)
        self.ready = DependencyGroup(file_system)
        associations: list[fsx.CfnDataRepositoryAssociation] = []
        for id, link in _links(options):
            made = self._associate(id, file_system, link)
            if associations:  # FSx makes one at a time
                made.node.add_dependency(associations[-1])
            associations.append(made)
        self.ready.add(*associations)
        self.mount = FileSystemMount(
            kind="fsx",
            id=file_system.ref,
            mount_dir=placement.mount_dir,
            dns_name=file_system.attr_dns_name,
            mount_name=file_system.attr_lustre_mount_name,
        )

    def _associate(self, id: str, file_system: fsx.CfnFileSystem, s3: S3Link) -> fsx.CfnDataRepositoryAssociation:
        association = fsx.CfnDataRepositoryAssociation
        return association(
            self,
            id,
            file_system_id=file_system.ref,
            file_system_path=s3.directory or DIRECTORY,
            data_repository_path=s3.uri,
            batch_import_meta_data_on_create=True,
            s3=association.S3Property(
                auto_import_policy=association.AutoImportPolicyProperty(events=_IMPORTED) if s3.auto_import else None,
                auto_export_policy=association.AutoExportPolicyProperty(events=_EXPORTED) if s3.auto_export else None,
            ),
        )


def _links(options: LustreOptions) -> Iterator[tuple[str, S3Link]]:
    """The links that are associations, each with its id in the stack: of the further ones by the directory."""
    if options.s3 and not options.links_root:
        yield "S3", options.s3
    for link in options.s3_links:
        yield f"S3{(link.directory or DIRECTORY).replace('/', '-')}", link


def _metadata(options: LustreOptions) -> fsx.CfnFileSystem.MetadataConfigurationProperty | None:
    """With EFA FSx demands one."""
    iops = options.metadata_iops
    if iops is None and not options.efa:
        return None
    if iops in (None, "automatic"):
        return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="AUTOMATIC")
    return fsx.CfnFileSystem.MetadataConfigurationProperty(mode="USER_PROVISIONED", iops=float(iops))


def existing(
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
    stack = Stack.of(scope)
    dns_name = f"{file_system_id}.fsx.{stack.region}.{stack.url_suffix}"
    return FileSystemMount("fsx", file_system_id, mount_dir, dns_name, mount_name, owned=False)
