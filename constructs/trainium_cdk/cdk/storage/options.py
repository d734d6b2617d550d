"""Options for new file systems, and for mounting any of them on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms


@dataclass(frozen=True)
class Placement:
    """Options for new file systems of any kind.

    Attributes:
        subnets: In each of them (EFS), or in the first (Lustre).
        security_group: Its servers' group.
        encryption_key: None for the service's own.
        removal_policy: For its data on `cdk destroy`.
    """

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
