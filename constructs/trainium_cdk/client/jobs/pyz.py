"""The runner as the one file that travels to a cluster: a ZIP archive of its modules, which Python starts."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from importlib import resources
from typing import NamedTuple

_ROOM = "runner"
_START = "from runner.__main__ import main\n\nmain()\n"
_DATE = (1980, 1, 1, 0, 0, 0)


class Pyz(NamedTuple):
    """The file. `name`: the SHA-256 of its content, which distinguishes versions."""

    content: bytes
    name: str


@cache
def pyz() -> Pyz:
    """The runner of this version: the same bytes each time, with the same zlib."""
    made = io.BytesIO()
    room = resources.files("trainium_cdk") / _ROOM
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), _START)
        for path, content in sorted(_modules(room, _ROOM)):
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content, compresslevel=1)  # a tenth larger than with 9, in half the time
    content = made.getvalue()
    return Pyz(content, hashlib.sha256(content).hexdigest())


def _modules(folder: resources.abc.Traversable, path: str) -> list[tuple[str, bytes]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _modules(one, f"{path}/{one.name}")
        elif one.name.endswith(".py"):
            found.append((f"{path}/{one.name}", one.read_bytes()))
    return found
