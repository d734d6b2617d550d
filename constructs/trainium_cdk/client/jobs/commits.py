"""The commit of a folder of code, and what is not committed of the files that are sent: a job's copy of the folder has no `.git`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

MAX_BYTES = 200_000
"""Most bytes of a diff that is recorded: the Secret of a job on Kubernetes has at most 1 MiB."""
_MAX_FILES = 500
_SECONDS = 20


class Commit(NamedTuple):
    """A commit, and the changes since. `diff`: of the files that are sent; None: there are more than are recorded."""

    id: str
    diff: bytes | None

    def __str__(self) -> str:
        changes = (
            ", and changes too large to be recorded"
            if self.diff is None
            else " and uncommitted changes" * bool(self.diff)
        )
        return f"commit {self.id[:12]}{changes}"


def read(folder: Path, sent: Collection[str]) -> Commit | None:
    """The commit of a folder; None if it is in no git repository, or git cannot say.

    Args:
        sent: names of the files that are sent. Nothing is recorded about others, which may be secret.
    """
    head = _git(folder, "rev-parse", "--verify", "HEAD")
    changed = _git(folder, "diff", "--name-only", "--relative", "--no-ext-diff", "-z", "HEAD") if head else None
    if not head or changed is None:
        return None
    names = [name for name in os.fsdecode(changed).split("\0") if name in sent]
    diff: bytes | None = b""
    if names:
        options = ("--relative", "--no-ext-diff", "--no-textconv", "--no-color", "--binary")
        diff = _git(folder, "diff", *options, "HEAD", "--", *names) if len(names) <= _MAX_FILES else None
    return Commit(head.decode().strip(), diff if diff is None or len(diff) <= MAX_BYTES else None)


def _git(folder: Path, *words: str) -> bytes | None:
    """Run git, and return its output; None if it fails."""
    options = ("--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder))
    try:
        done = subprocess.run(
            ["git", *options, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
