"""A container's view of the file system, and its command: `python -I -S container.py SPEC.json`. It imports nothing of ours.

`pods.py` starts it in a mount namespace (and a user namespace unless the user is root). The view is this machine's files
with the pod's volumes mounted. It is not visible outside, and changes nothing on this machine: a mount point that does
not exist here exists only in the view.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError."""
    done = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount of {source} at {target}: {os.strerror(number)}")


class View:
    """A root directory under construction at `root`, an empty directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._own: set[PurePosixPath] = set()
        self._volumes: set[PurePosixPath] = set()
        mount("none", Path("/"), None, _MS_REC | _MS_PRIVATE)
        self._open_up(PurePosixPath("/"))

    def put(self, source: str, place: str, read_only: bool = False) -> None:
        """Mount the file or directory `source` at `place`."""
        target = PurePosixPath(place)
        for above in reversed(target.parents):
            inside_volume = any(volume == above or volume in above.parents for volume in self._volumes)
            if above not in self._own and not inside_volume:
                self._open_up(above)
        here = self.root / target.relative_to("/")
        if Path(source).is_dir():
            here.mkdir(parents=True, exist_ok=True)
        elif not here.exists():
            here.parent.mkdir(parents=True, exist_ok=True)
            here.touch()
        mount(source, here, None, _MS_BIND | _MS_REC)
        if read_only:
            mount("none", here, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
        self._volumes.add(target)

    def enter(self) -> None:
        os.chroot(self.root)
        os.chdir("/")

    def _open_up(self, place: PurePosixPath) -> None:
        """Make `place` a separate directory of the view, with this machine's content.

        A path that does not exist, or is hidden below a mounted one, becomes an empty directory.
        """
        here = self.root / place.relative_to("/")
        there = Path(place)
        here.mkdir(parents=True, exist_ok=True)
        if there.is_dir() or place == PurePosixPath("/"):
            # without the sticky bit, which would keep other users from opening /dev/null for writing (may_create_in_sticky)
            mount("view", here, "tmpfs", 0, f"mode={there.stat().st_mode & 0o777:o}")
            for entry in os.scandir(there):
                self._show(entry, here / entry.name)
        self._own.add(place)

    def _show(self, entry: os.DirEntry[str], here: Path) -> None:
        if entry.is_symlink():
            here.symlink_to(Path(entry.path).readlink())
            return
        if self.root.is_relative_to(entry.path) and entry.path == str(self.root):
            return  # do not mount the view into itself
        here.mkdir() if entry.is_dir() else here.touch()
        mount(entry.path, here, None, _MS_BIND | _MS_REC)


def main() -> None:
    spec: Mapping[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    env = dict(spec["env"])
    try:
        view = View(Path(spec["root"]))
        for volume in spec["mounts"]:
            view.put(volume["source"], volume["place"], volume["read_only"])
        _libc.sethostname(spec["hostname"].encode(), len(spec["hostname"].encode()))
        view.enter()
        if spec["directory"]:
            os.chdir(spec["directory"])
        os.environ.clear()
        os.environ.update(env)  # execvp searches this PATH
        os.execvpe(spec["command"][0], spec["command"], env)  # noqa: S606  the command is the container's own
    except OSError as problem:
        print(f"container did not start: {problem}", file=sys.stderr, flush=True)
        sys.exit(128 if problem.filename is None else 127)


if __name__ == "__main__":
    main()
