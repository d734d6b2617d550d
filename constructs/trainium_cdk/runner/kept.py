"""What says that a checkpoint in S3 is whole: `work.keep` writes it, `prepare.outside` reads it."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Refused

SUFFIX = ".trn-complete"
"""The end of a mark's address, after the checkpoint's own."""


@dataclass(frozen=True)
class Mark:
    """The mark of a whole checkpoint.

    Attributes:
        kind: of its job. same: what a job that continues from it must have in common with that one (`spec.Checkpoints`).
        files: their bytes, by the rest of their addresses; one that is a file itself has the empty rest.
    """

    kind: str
    same: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


def stats(checkpoint: Path) -> dict[str, tuple[int, int]]:
    """The bytes and the time of change, in nanoseconds, of each file of a checkpoint, as `Mark.files` names them.

    Raises:
        OSError: it has just been deleted.
        Refused: it has a link: S3 has none.
    """
    seen = {str(one)[len(str(checkpoint)) :]: one.lstat() for one in (checkpoint, *checkpoint.rglob("*"))}
    for name, one in seen.items():
        if stat.S_ISLNK(one.st_mode):
            raise Refused(f"{checkpoint.name}{name} is a link, which S3 does not have. Save a copy in its place")
    return {name: (one.st_size, one.st_mtime_ns) for name, one in sorted(seen.items()) if stat.S_ISREG(one.st_mode)}


def name_of(checkpoint: Path, stats: Mapping[str, tuple[int, int]]) -> str:
    """Where a checkpoint of this content is kept: `DIGEST/NAME`. Another content is kept elsewhere."""
    return f"{hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:12]}/{checkpoint.name}"
