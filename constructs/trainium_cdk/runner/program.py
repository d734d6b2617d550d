"""This program as a file, which jobs begin with and keep."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from . import files
from .requests import Cluster

PLACE = "trn-runner"
"""Folder of root's on the shared file system: each version is a file in it, by the name of its SHA-256."""


def path_for_jobs(cluster: Cluster) -> str:
    """The path by which nodes find this program. Where root has not placed it, it is copied into the folder of the user's own: who runs `trn` on
    a head node cannot ask root."""
    here = Path(sys.argv[0]).absolute()
    if here.parent == cluster.shared / PLACE:
        return str(here)
    content = here.read_bytes()
    copy = cluster.trn / "runner" / f"{hashlib.sha256(content).hexdigest()}.pyz"
    copy.parent.mkdir(exist_ok=True)
    files.write(copy, content)  # one that differs is replaced: a job may have written it
    return str(copy)
