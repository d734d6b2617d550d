"""Safe extraction of tar archives, also on Debian 12's Python 3.11.2, whose `extractall` has no filters."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extract an archive whose content is pinned or was created here.

    Args:
        members: only these. Default: all.
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    for member in archive if members is None else members:
        archive.extract(member, folder)
