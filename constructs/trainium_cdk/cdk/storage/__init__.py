"""Shared storage: EFS and FSx for Lustre, owned by the stack or existing."""

from trainium_cdk.cdk.storage.given import AnyStorage
from trainium_cdk.cdk.storage.options import FileSystemMount
from trainium_cdk.cdk.storage.shared import TrnStorage

__all__ = ["AnyStorage", "FileSystemMount", "TrnStorage"]
