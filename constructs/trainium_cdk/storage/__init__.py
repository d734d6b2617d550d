"""Shared storage: EFS and FSx for Lustre, owned by the stack or existing."""

from trainium_cdk.storage.mounts import FileSystemMount
from trainium_cdk.storage.shared import TrnStorage

__all__ = ["FileSystemMount", "TrnStorage"]
