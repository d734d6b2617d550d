"""Shared file systems as arguments of constructs: a `TrnStorage`, or a file system of the CDK."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.paths import digest
from trainium_cdk.cdk.helpers.stack_wide import stack_wide
from trainium_cdk.cdk.storage.efs import AS_ROOT
from trainium_cdk.cdk.storage.efs import mount_of as efs_mount_of
from trainium_cdk.cdk.storage.fsx import mount_of as lustre_mount_of
from trainium_cdk.cdk.storage.options import FileSystemMount
from trainium_cdk.cdk.storage.shared import TrnStorage

if TYPE_CHECKING:
    AnyStorage: TypeAlias = TrnStorage | efs.IFileSystem | fsx.LustreFileSystem
else:  # an imported file system of FSx has its own explanation
    AnyStorage = TrnStorage | efs.IFileSystem | fsx.LustreFileSystem | fsx.FileSystemBase


def storage_in(scope: Construct, vpc: ec2.IVpc, given: AnyStorage) -> TrnStorage:
    """The storage, with a security group of its clients. Constructs of one stack share it."""
    if isinstance(given, TrnStorage):
        return given
    # their ids and not their paths: a stack that moves keeps them
    known = [Stack.of(each).resolve(id) for each, id in ((given, given.file_system_id), (vpc, vpc.vpc_id))]
    id = f"TrnStorage{digest(json.dumps(known))}"
    theirs = given if isinstance(given, fsx.LustreFileSystem) else _efs(scope, given)
    return stack_wide(scope, id, TrnStorage, lambda stack, id: wrapped(stack, id, vpc, theirs))


def wrapped(scope: Construct, id: str, vpc: ec2.IVpc, given: efs.IFileSystem | fsx.LustreFileSystem) -> TrnStorage:
    """A `TrnStorage` of this file system alone."""
    if isinstance(given, fsx.LustreFileSystem):
        return TrnStorage(scope, id, vpc=vpc, efs=None, lustre=given)
    return TrnStorage(scope, id, vpc=vpc, efs=_efs(scope, given))


def mounts(scope: Construct, given: AnyStorage | None) -> list[FileSystemMount]:
    """List the file systems that nodes and pods mount."""
    if given is None:
        return []
    if isinstance(given, TrnStorage):
        return given.file_systems
    if isinstance(given, fsx.LustreFileSystem):
        return [lustre_mount_of(scope, given, "/fsx")]
    return [efs_mount_of(scope, _efs(scope, given), "/efs")]


def grant_to_nodes(scope: Construct, given: AnyStorage, grantee: iam.IGrantable) -> None:
    """Let nodes of EKS mount the EFS file system: a new one through its access points alone, and one that may have files already as root.
    Lustre has no permissions for mounting."""
    if isinstance(given, TrnStorage):
        new = any(mount.kind == "efs" and mount.owned for mount in given.file_systems)
        given.grant_access_points(grantee) if new else given.grant_root_access(grantee)
    elif not isinstance(given, fsx.LustreFileSystem):
        arns = [_efs(scope, given).file_system_arn]
        iam.Grant.add_to_principal(grantee=grantee, actions=list(AS_ROOT), resource_arns=arns)


def _efs(scope: Construct, given: efs.IFileSystem) -> efs.IFileSystem:
    if isinstance(given, fsx.FileSystemBase):  # an imported one
        raise ValueError(
            f"{scope.node.path}: the mount name of an imported FSx for Lustre file system is not known: "
            "give TrnStorage(lustre=..., lustre_mount_name=...)"
        )
    return given
