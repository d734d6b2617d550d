"""The first failure of a stage: its node and its output. srun ends the other nodes, and may drop the last lines of the one that failed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .. import files, records
from .output import say, show

_SHOWN = 40
_LOOKED_AT = 100  # lines of the stage's own log
_MOST = 1_000_000


def sizes(job: Path, stage: str) -> dict[str, int]:
    """The sizes of the logs of a stage's nodes: what they have now is of earlier attempts."""
    found = {}
    with contextlib.suppress(OSError):
        for one in os.scandir(job / "logs"):
            if one.name.startswith(f"{stage}.") and one.is_file(follow_symlinks=False):
                found[one.name] = one.stat(follow_symlinks=False).st_size
    return found


def tell(job: Path, stage: str, run: str, before: dict[str, int]) -> None:
    """Tell which node failed first, with the last lines of its log unless the stage's log has them.

    Args:
        before: `sizes` at the beginning of this run.
    """
    failed = records.failure(job, stage, run)
    if failed is None or failed.stopped:
        return
    name = f"{stage}.{failed.node}.log"
    say(f"node {failed.node} failed first; its own log is {job / 'logs' / name}")
    own = _end(job / "logs" / name, before.get(name, 0))
    last = next((line for line in reversed(own[-9:]) if line.strip()), "")
    if any(last in line for line in _end(job / "logs" / f"{stage}.log")[-_LOOKED_AT:]):
        return
    for line in own[-_SHOWN:]:
        show(f"{failed.node}: {line}")


def _end(log: Path, begin: int = 0) -> list[str]:
    """The last lines of a log, none before a byte."""
    with contextlib.suppress(OSError):
        return files.read_end(log, _MOST, begin).decode(errors="replace").splitlines()
    return []
