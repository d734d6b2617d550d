"""Checkpoints that a program writes to its node's own disk, which are copied to the shared file system behind it.

    LOCAL/NAME                     on each node, what its program has renamed into place: finished there (`TRN_CHECKPOINTS_FAST`)
    JOB/fast/RUN/NAME/NODE         what a node has copied, whole; before: NODE.part
    JOB/fast/RUN/NODE.ended        this node copies no more
    JOB/checkpoints/NAME           the parts of all nodes in one folder, renamed into place: complete
    JOB/fast/complete.json         the names of those that were put there, the newest last

A run's parts are its own, so that no checkpoint has parts of two attempts. What a program finds after a restart is complete, as it looks into
`checkpoints` alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .. import files
from .places import Node

VARIABLE = "TRN_CHECKPOINTS_FAST"
KEPT = 3
"""How many of those that it has copied stay on the shared file system."""
_FOLDER = "trn-fast-"
_EVERY = 5.0
ENDS_SECONDS, STOPS_SECONDS = 600.0, 30.0
"""For which the end of a program waits until its last checkpoint is copied: where it has completed, and else."""
_WRITING = (".part", ".tmp")
_DISKS = ("/scratch",)
"""Where ParallelCluster mounts a node's own disks. Elsewhere: the folder of temporary files."""
_PIECE = 8 << 20


class Copier:
    """Copies what this node's program has finished, and, on the first node, puts together what all have copied.

    Args:
        into: the folder of checkpoints on the shared file system.
        say: writes a line to the log.
    """

    def __init__(self, node: Node, into: Path, say: Callable[[str], None], *, disk: Path | None = None) -> None:
        self._node, self._into, self._say = node, into, say
        self._fast = node.job / "fast"
        self._run = self._fast / node.run
        name = node.job.name if not node.index else f"{node.root.name}-{node.index}"
        self.local = (disk or _disk()) / f"{_FOLDER}{os.getuid()}-{name}" / f"{node.run}-{node.number}"
        self._held = contextlib.ExitStack()
        self._copied: set[str] = set()
        self._open: list[str] = []
        self._told = ""
        self._over, self._until = threading.Event(), 0.0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def prepare(self, *, first: bool = True) -> None:
        """Make the folders. What other runs, and jobs that were killed, have left on this node, or not put together, goes.

        Args:
            first: of the processes of this node, which alone does that.

        Raises:
            OSError: a disk is full, or gone.
        """
        place, mine = self.local.parent, str(self._node.number)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.is_symlink() or place.lstat().st_uid != os.getuid():
            raise PermissionError(1, "it is another user's", str(place))
        self.local.mkdir(mode=0o700, exist_ok=True)
        if not first:
            return
        self._held.enter_context(files.hold(place, shared=True))
        files.remove_left(place.parent, f"{_FOLDER}{os.getuid()}-*")
        for one in place.iterdir():
            for old in _inside(one) if one.name.endswith(f"-{mine}") else ():
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            if one != self.local and one.name.endswith(f"-{mine}"):
                one.rmdir()
        (self._run / f"{mine}.ended").unlink(missing_ok=True)
        for one in _inside(self._run):  # on Kubernetes, an attempt that was preempted begins again by the same name
            shutil.rmtree(one / mine, ignore_errors=True)
        for one in _inside(self._fast) if self._node.number == 0 else ():
            if one != self._run and one.is_dir():
                shutil.rmtree(one, ignore_errors=True)

    def begin(self) -> None:
        """Copy from now on, while a program runs."""
        self._thread.start()

    def end(self, seconds: float) -> None:
        """Copy what is finished, for at most so many seconds."""
        self._until = time.monotonic() + seconds
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(seconds + 5)
        shutil.rmtree(self.local, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.local.parent.rmdir()
        self._held.close()

    def look(self) -> bool:
        """Copy what is finished, and put together what all have copied. Returns whether this node has copied all of it."""
        left = False
        self.local.mkdir(mode=0o700, parents=True, exist_ok=True)  # a node may clean its temporary files
        for one in _finished(self.local):
            if one.name not in self._copied:
                left = not self._try(one.name, lambda one=one: self._copy(one)) or left  # type: ignore[misc]
        for name in list(self._open):
            there = (self._into / name).exists()
            if not there and self._node.number == 0:
                there = self._try(name, lambda name=name: self._put_together(name))  # type: ignore[misc]
            if there:
                self._open.remove(name)
        for one in _finished(self.local)[:-1]:
            if one.name in self._copied and one.name not in self._open:
                shutil.rmtree(one, ignore_errors=True)
        return not left

    # --- one node -------------------------------------------------------------------------------------------------------------------

    def _copy(self, one: Path) -> bool:
        """Returns whether it is whole: a program may still change it."""
        if not one.is_dir() or one.is_symlink():
            raise NotADirectoryError(20, "a checkpoint is a folder, which each node makes", str(one))
        place = self._run / one.name
        part, whole = place / f"{self._node.number}.part", place / str(self._node.number)
        shutil.rmtree(part, ignore_errors=True)
        before = _content(one)
        part.mkdir(parents=True)
        for relative in before:
            if (one / relative).is_dir():
                (part / relative).mkdir(parents=True, exist_ok=True)
            else:
                (part / relative).parent.mkdir(parents=True, exist_ok=True)
                _copy_file(one / relative, part / relative)
        if _content(one) != before:
            return False
        for folder in [*(path for path in part.rglob("*") if path.is_dir()), part]:
            _sync(folder)
        part.rename(whole)
        _sync(place)
        self._copied.add(one.name)
        self._open.append(one.name)
        return True

    # --- all nodes -----------------------------------------------------------------------------------------------------------------------

    def _put_together(self, name: str) -> bool:
        """Returns whether it is complete."""
        place = self._run / name
        files.refresh(place)
        parts = [place / str(number) for number in range(self._node.nodes)]
        if not all(one.is_dir() for one in parts):
            return False
        whole = parts[0]  # of two files of one name, the first node's stays
        for part in parts[1:]:
            for relative in _content(part):
                if (part / relative).is_dir():
                    (whole / relative).mkdir(exist_ok=True)
                elif not (whole / relative).exists():
                    (part / relative).rename(whole / relative)
        for folder in [*(path for path in whole.rglob("*") if path.is_dir()), whole]:
            _sync(folder)
        whole.rename(self._into / name)
        _sync(self._into)
        shutil.rmtree(place, ignore_errors=True)
        self._keep(name)
        return True

    def _keep(self, name: str) -> None:
        """Record it, and delete the oldest of those that stand there too many."""
        record = self._fast / "complete.json"
        found = files.read_json(record)
        before = [one for one in found if isinstance(one, str) and one != name] if isinstance(found, list) else []
        every = [*before, name]
        for one in every[:-KEPT]:
            if one == Path(one).name and one not in ("", ".", ".."):
                shutil.rmtree(self._into / one, ignore_errors=True)
        files.write_json(record, every[-KEPT:])

    # --- the thread -----------------------------------------------------------------------------------------------------------------------

    def _try(self, name: str, do: Callable[[], bool]) -> bool:
        """A disk that is full fails no training: it is told, and tried again."""
        try:
            return do()
        except OSError as e:
            shutil.rmtree(self._run / name / f"{self._node.number}.part", ignore_errors=True)
            text = f"the checkpoint {name} is not copied to {self._into}: {e.strerror or e}"
            if text != self._told:
                self._say(text)
                self._told = text
            return False

    def _work(self) -> None:
        while not self._over.wait(_EVERY):
            with contextlib.suppress(Exception):
                self.look()
        while time.monotonic() < self._until:
            with contextlib.suppress(Exception):
                others = self._have_ended()
                if self.look() and (others or not self._open or self._node.number):
                    break
            time.sleep(0.5)
        if self._open and self._node.number == 0:
            self._say(f"not complete, as not every node has copied its part in time: {', '.join(self._open)}")
        with contextlib.suppress(OSError):
            if _inside(self._fast):
                (self._run / f"{self._node.number}.ended").touch()

    def _have_ended(self) -> bool:
        """Whether all other nodes copy no more."""
        files.refresh(self._run)
        return all((self._run / f"{number}.ended").exists() for number in range(1, self._node.nodes))


def _disk() -> Path:
    """The node's own disk."""
    for one in _DISKS:
        if Path(one).is_dir() and os.access(one, os.W_OK):
            return Path(one)
    return Path(tempfile.gettempdir())


def _inside(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        files.refresh(folder)
        return list(folder.iterdir())
    return []


def _finished(folder: Path) -> list[Path]:
    """The checkpoints of a program, the oldest first: all that has its own name."""
    with contextlib.suppress(OSError):
        found = [one for one in folder.iterdir() if not one.name.startswith(".") and not one.name.endswith(_WRITING)]
        return sorted(found, key=lambda one: one.lstat().st_mtime)
    return []


def _content(folder: Path) -> dict[Path, tuple[int, int]]:
    """All that is in a folder, with sizes and times of files. Links are left out: what they name may be another's."""
    made: dict[Path, tuple[int, int]] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            found = path.stat()
            made[path.relative_to(folder)] = (0, 0) if path.is_dir() else (found.st_size, found.st_mtime_ns)
    return made


def _copy_file(of: Path, to: Path) -> None:
    with of.open("rb") as source, to.open("wb") as copy:
        shutil.copyfileobj(source, copy, _PIECE)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(of, to)


def _sync(folder: Path) -> None:
    """So that what was renamed there is on the disk."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


__all__ = ["ENDS_SECONDS", "KEPT", "STOPS_SECONDS", "VARIABLE", "Copier"]
