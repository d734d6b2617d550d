"""What says that a checkpoint in S3 is whole: `work.keep` writes it, `prepare.resume` reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    """
    files = [checkpoint] if checkpoint.is_file() else [one for one in checkpoint.rglob("*") if one.is_file()]
    seen = {str(one)[len(str(checkpoint)) :]: one.stat() for one in files}
    return {name: (one.st_size, one.st_mtime_ns) for name, one in sorted(seen.items())}


def content(stats: Mapping[str, tuple[int, int]]) -> str:
    """A word for the content of a checkpoint, by its `stats`: another content has another word."""
    return hashlib.sha256(json.dumps(stats).encode()).hexdigest()[:16]
