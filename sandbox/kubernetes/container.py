"""A container's view of the file system, and its command: `python -I -S container.py SPEC.json`. It imports nothing of ours.

`pods.py` starts it in a mount namespace (and a user namespace unless the user is root). The view is this machine's files
with the pod's volumes mounted. It is not visible outside, and changes nothing on this machine: a mount point that does
not exist here exists only in the view.

Where the sandbox runs as root, the command has the user, the group and the capabilities of the pod, and a root that is
only read if the pod says so. Elsewhere it has the rights of whoever started the sandbox.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPABILITIES = 41
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
            # without the sticky bit, which would keep other users from opening /dev/null for writing (may_create_in_sticky);
            # open to all, as the folders of an image
            mount("view", here, "tmpfs", 0, f"mode={there.stat().st_mode & 0o777 | 0o555:o}")
            for entry in os.scandir(there):
                try:
                    self._show(entry, here / entry.name)
                except (FileNotFoundError, NotADirectoryError):  # another program has removed or replaced it
                    _remove(here / entry.name)
        self._own.add(place)

    def _show(self, entry: os.DirEntry[str], here: Path) -> None:
        if entry.is_symlink():
            here.symlink_to(Path(entry.path).readlink())
            return
        if self.root.is_relative_to(entry.path) and entry.path == str(self.root):
            return  # do not mount the view into itself
        here.mkdir() if entry.is_dir() else here.touch()
        mount(entry.path, here, None, _MS_BIND | _MS_REC)


def _remove(place: Path) -> None:
    if place.is_dir():
        place.rmdir()
    else:
        place.unlink(missing_ok=True)


def begin_first() -> None:
    """Go on as the first process of a new namespace of processes, in a child; this one waits, and ends as it does."""
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    mount("proc", Path("/proc"), "proc", 0)


def only_read(free: Sequence[str]) -> None:
    """Make all that is mounted here read-only, but what is at or below these places."""
    free = ("/proc", "/sys", "/dev", *free)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines}
    for place in filter(os.path.lexists, places):  # not what is hidden below another mount
        if not any(place == one or place.startswith(f"{one}/") for one in free):
            mount("none", Path(place), None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)


def become(user: int, group: int) -> None:
    """Go on as this user, without any capability, and without a way to get one."""
    for number in range(_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def find_program(name: str, path: str) -> str:
    """As the container's runtime finds it, in the PATH of the container. Raises OSError in its words."""
    found = name if "/" in name else shutil.which(name, path=path)
    if found is None:
        raise OSError(f'exec: "{name}": executable file not found in $PATH')
    return found


def main() -> None:
    spec: Mapping[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    env = dict(spec["env"])
    problems = os.open(spec["problems"], os.O_WRONLY | os.O_CLOEXEC) if "problems" in spec else 2
    try:
        if spec.get("user") is not None:
            begin_first()
        view = View(Path(spec["root"]))
        for volume in spec["mounts"]:
            view.put(volume["source"], volume["place"], volume["read_only"])
        _libc.sethostname(spec["hostname"].encode(), len(spec["hostname"].encode()))
        view.enter()
        if spec.get("read_only_root"):
            only_read([volume["place"] for volume in spec["mounts"] if not volume["read_only"]])
        if spec.get("user") is not None:
            become(spec["user"], spec["group"])
        if spec["directory"]:
            os.chdir(spec["directory"])
        program = find_program(spec["command"][0], env.get("PATH", os.defpath))
        os.execve(program, spec["command"], env)  # noqa: S606  the command is the container's own
    except OSError as problem:
        os.write(problems, f"{problem}\n".encode())
        sys.exit(128)


if __name__ == "__main__":
    main()
