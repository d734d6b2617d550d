"""The data that a node needs to mount a file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
