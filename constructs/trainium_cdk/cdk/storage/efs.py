"""An EFS file system with a mount target in each zone."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup

from trainium_cdk.cdk.helpers.paths import below_stack, digest
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, place_of, stack_of
from trainium_cdk.cdk.storage.options import FileSystemMount, Placement
from trainium_cdk.description.settings import Efs, ExistingEfs

MOUNT = "elasticfilesystem:ClientMount"
WRITE = "elasticfilesystem:ClientWrite"
AS_ROOT = (MOUNT, WRITE, "elasticfilesystem:ClientRootAccess")
BY_ACCESS_POINT = {"Null": {"elasticfilesystem:AccessPointArn": "false"}}
"""Condition of a permission to mount: not the root of the file system. An access point that enforces a user needs no access as root."""


class EfsFileSystem(StackPart):
    """Encrypted at rest and, by its policy, in transit; only IAM identities with permission can mount it (see `TrnStorage.grant_read`).
    The policy names no access point: they are made after it, and a Slurm cluster that shares the file system mounts its root."""

    def __init__(self, scope: Construct, id: str, settings: Efs, placement: Placement) -> None:
        super().__init__(scope, id)
        file_system = efs.CfnFileSystem(
            self,
            "Resource",
            encrypted=True,
            kms_key_id=placement.encryption_key.key_arn if placement.encryption_key else None,
            performance_mode="generalPurpose",
            throughput_mode=settings.throughput,
            provisioned_throughput_in_mibps=settings.provisioned_mibps,
            backup_policy=efs.CfnFileSystem.BackupPolicyProperty(status="ENABLED" if settings.backups else "DISABLED"),
            lifecycle_policies=[
                efs.CfnFileSystem.LifecyclePolicyProperty(transition_to_ia="AFTER_30_DAYS"),
                efs.CfnFileSystem.LifecyclePolicyProperty(transition_to_primary_storage_class="AFTER_1_ACCESS"),
            ],
            file_system_policy=_policy(),
        )
        file_system.apply_removal_policy(placement.removal_policy)
        targets = []
        for name, subnet in _by_stable_name(placement.subnets).items():
            target = efs.CfnMountTarget(
                self,
                f"Target{name}",
                file_system_id=once(file_system, "ref"),
                subnet_id=once(subnet, "subnet_id"),
                security_groups=[once(placement.security_group, "security_group_id")],
            )
            targets.append(target)
        self.ready = DependencyGroup(file_system, *targets)
        self.arn = file_system.attr_arn
        self.mount = FileSystemMount(
            "efs", once(file_system, "ref"), settings.mount_dir, dns_name(self, once(file_system, "ref"))
        )


def _by_stable_name(subnets: Sequence[ec2.ISubnet]) -> dict[str, ec2.ISubnet]:
    """Subnets by their construct's id, so that another order or another VPC around them replaces no mount target. Where two have the
    same id, or it is a token, their paths in the stack tell them apart."""
    ids = [once(subnet, "node").id for subnet in subnets]
    return {
        digest(below_stack(subnet)) if unresolved(id) or ids.count(id) > 1 else id: subnet
        for id, subnet in zip(ids, subnets, strict=True)
    }


def from_settings(scope: Construct, id: str, existing: ExistingEfs) -> efs.IFileSystem | str:
    """An existing file system; its id alone, if its security group is not to be changed."""
    if not existing.security_group:
        return existing.id
    group = ec2.SecurityGroup.from_security_group_id(
        scope, f"{id}ExistingEfsGroup", existing.security_group, allow_all_outbound=False
    )
    return efs.FileSystem.from_file_system_attributes(
        scope, f"{id}ExistingEfs", file_system_id=existing.id, security_group=group
    )


def mount_of(scope: Construct, given: efs.IFileSystem | str, mount_dir: str) -> FileSystemMount:
    """An existing file system, or its id."""
    file_system_id = given if isinstance(given, str) else given.file_system_id
    return FileSystemMount("efs", file_system_id, mount_dir, dns_name(scope, file_system_id), owned=False)


def folder_of_namespace(scope: Construct, id: str, file_system_id: str, name: str, user: int) -> str:
    """The id of an access point: below it, EFS takes every client for this user, and shows nothing above. The folder stays when it goes."""
    both = str(user)
    return efs.CfnAccessPoint(
        scope,
        id,
        file_system_id=file_system_id,
        posix_user=efs.CfnAccessPoint.PosixUserProperty(uid=both, gid=both),
        root_directory=efs.CfnAccessPoint.RootDirectoryProperty(
            path=f"/trn-teams/{name}",
            creation_info=efs.CfnAccessPoint.CreationInfoProperty(owner_uid=both, owner_gid=both, permissions="0700"),
        ),
    ).ref


def dns_name(scope: Construct, file_system_id: str) -> str:
    """The host name, which resolves to the mount target in the client's zone."""
    place = place_of(scope)
    return f"{file_system_id}.efs.{place.region}.{place.url_suffix}"


def arn_of(scope: Construct, file_system_id: str) -> str:
    """The ARN of a file system in the stack's account and region."""
    return stack_of(scope).format_arn(service="elasticfilesystem", resource="file-system", resource_name=file_system_id)


def _policy() -> iam.PolicyDocument:
    # With any policy, EFS no longer lets every client that reaches a mount target mount; the identity's own policy then
    # decides. This one also denies access without TLS.
    return iam.PolicyDocument(
        statements=[
            iam.PolicyStatement(
                sid="OnlyWithTls",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["*"],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            )
        ]
    )
