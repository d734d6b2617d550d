"""The folder of a user's jobs, which anybody may have made."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from ..errors import Theirs
from ..requests import Cluster


def check_folder(cluster: Cluster) -> None:
    """Check that the jobs are this user's. Each user has its own folder; for a user of a directory, it is made here.

    Raises:
        Theirs: they belong to somebody else, or the folder was made by somebody else.
    """
    if cluster.multi_user and "/" in cluster.folder:
        _check_own(cluster.trn)
    jobs = cluster.jobs
    if jobs.is_dir() and (jobs.stat().st_uid != os.getuid() or not os.access(jobs, os.W_OK)):
        owner = owner_of(jobs)
        raise Theirs(
            f"the jobs in {jobs} belong to {owner}, and you are {user()}. Run this as {owner} (sudo -Hu {owner} trn ...), or give --ssm. "
            f"If they are of an earlier version, an administrator can give them to {user()} when they have ended: sudo chown -hR {user()}: {cluster.trn}"
        )


def _check_own(trn: Path) -> None:
    with contextlib.suppress(OSError):
        trn.mkdir(mode=0o700)
    if not os.path.lexists(trn):
        raise Theirs(
            f"there is no {trn}: the head node's bootstrap makes it for each user of the cluster, and has not finished. Wait until the cluster is deployed"
        )
    if trn.is_symlink() or not trn.is_dir() or trn.lstat().st_uid != os.getuid():
        what = "symbolic link" if trn.is_symlink() else "directory" if trn.is_dir() else "regular file"
        raise Theirs(
            f"{trn} is not a folder of {user()}, but a {what} of {owner_of(trn)}. An administrator can remove it"
        )


def user() -> str:
    """The name of the user who asks."""
    return _name(os.getuid())


def owner_of(path: Path) -> str:
    return _name(path.lstat().st_uid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
