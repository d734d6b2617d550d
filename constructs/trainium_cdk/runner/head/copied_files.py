"""Files that `trn cp` copies, on either side: the client imports this, too. A file takes its name when it is complete, and nothing leaves
its folder, also not through links."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import Refused
from ..requests import Entry, Listing

PART = ".trn-part-"
"""What the name of a file begins with until it is complete."""
SPAN = 64 * 2**20
"""Bytes of a file that one request to S3 reads or writes, at least."""
BLOCK = 2**20
_MODE = 0o755
"""Permissions that a file can have on its way: none that lets others write it, and no set-user-ID."""


_LARGEST, _LATEST = 10_000 * 5 * 2**30, 2**40
"""Bytes that an object of S3 can have, and the time of a change that a file system takes."""


def spans(size: int) -> list[tuple[int, int]]:
    """Offset and length of each part of a file that is one request: at most about 100, unless S3 (5 GiB each) needs more."""
    step = min(max(SPAN, -(-size // 100)), 5 * 2**30)
    return [(offset, min(step, size - offset)) for offset in range(0, size, step)] or [(0, 0)]


def list_files(path: Path, most: int) -> Listing:
    """The entries of a folder, or of one file."""
    if path.is_file():
        return Listing(str(path.parent), False, (_entry(path, path.name, path.stat()),))
    if not path.is_dir():
        raise Refused(f"there is no file or folder {path}")
    entries: list[Entry] = []
    left: list[str] = []

    def unreadable(error: OSError) -> None:
        left.append(f"{Path(error.filename).relative_to(path).as_posix()}/ ({error.strerror})")

    for place, below, names in os.walk(path, onerror=unreadable):
        below.sort()
        for name in sorted([*names, *(n for n in below if Path(place, n).is_symlink())]):
            file = Path(place, name)
            found, relative = file.lstat(), file.relative_to(path).as_posix()
            if name.startswith(PART):
                continue
            if name == "env.json" and Path(place, "job.json").is_file():
                left.append(f"{relative} (the job's variables, which may be secret)")
                continue
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                left.append(f"{relative} (no regular file)")
            elif stat.S_ISLNK(found.st_mode) and not _leads_inside(path, relative, os.readlink(file)):
                left.append(f"{relative} (a link that leads out of the folder)")
            else:
                entries.append(_entry(file, relative, found))
        if len(entries) > most:
            raise Refused(f"{path} has more than {most:,} files. Pack them into archives (tar)")
    return Listing(str(path), True, tuple(entries), tuple(left))


def checked(entries: Iterable[Entry], most: int) -> tuple[Entry, ...]:
    """A list of files that another machine has made: before the first one is written, each of them could be one of a folder.

    Raises:
        Refused: one could not, or there are more than so many.
    """
    found = {entry.name: entry for entry in entries}
    entries = tuple(found.values())
    if len(entries) > most:
        raise Refused(f"there are more than {most:,} files. Pack them into archives (tar)")
    for entry in entries:
        place = entry.name.rpartition("/")[0]
        if not _is_name(entry.name) or not 0 <= entry.size <= _LARGEST or abs(entry.time) > _LATEST:
            raise Refused(f"{entry.name[:80]!r} cannot be a file: its name, size or time is none")
        if entry.link and not _stays(entry.name, entry.link):
            raise Refused(f"{entry.name[:80]!r} is a link to {entry.link[:80]!r}, which may lead out of the folder")
        while place:
            if place in found:
                raise Refused(f"{place[:80]!r} is a file or a link, and cannot have {entry.name[:80]!r} in it")
            place = place.rpartition("/")[0]
    return entries


def _entry(file: Path, name: str, found: os.stat_result) -> Entry:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Refused(f"the name {os.fsencode(name)!r} is not UTF-8 text. Rename it") from None
    if stat.S_ISLNK(found.st_mode):
        return Entry(name, 0, 0, 0, os.readlink(file))
    return Entry(name, found.st_size, int(found.st_mtime), found.st_mode & 0o777, "")


def find(root: Path, names: Iterable[str]) -> tuple[Entry | None, ...]:
    """Read the entries by these names. None: there is nothing, or something that a file may replace."""
    found: list[Entry | None] = []
    for name in names:
        file = _place(root, name)
        try:
            there = file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            found.append(None)
            continue
        if stat.S_ISDIR(there.st_mode):
            raise Refused(f"{file} is a folder, and would be replaced by a file. Move it away")
        found.append(_entry(file, name, there) if stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode) else None)
    return tuple(found)


def free(path: Path) -> int:
    """Bytes that are free on the file system of a folder, or of the folder above it that exists."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def arriving(root: Path, entry: Entry, digest: str = "") -> Iterator[BinaryIO]:
    """A new file, which takes its name, with its time and permissions, when it is complete and has this SHA-256. Else nothing of it is left."""
    file = _place(root, entry.name)
    find(root, [entry.name])
    part = _part(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except PermissionError:
        raise Refused(f"there is no permission to write in {file.parent}. Choose another folder") from None
    with os.fdopen(opened, "r+b") as out:
        if not _locked(out, part):
            raise Refused(f"{file} is being written by another copy. Copy it again when that has ended")
        try:
            out.truncate(0)
            yield out
            out.flush()
            if os.fstat(out.fileno()).st_size != entry.size or (digest and sha256(out) != digest):
                raise Refused(f"{file} is not what was sent: it was replaced or damaged on its way")
            os.fchmod(out.fileno(), entry.mode & _MODE)
            os.fsync(out.fileno())
            os.utime(part, (entry.time, entry.time))
            part.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def _locked(out: BinaryIO, part: Path) -> bool:
    """Lock a partial file. Return whether this copy alone writes it, and it is still there by that name."""
    try:
        fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(out.fileno()), os.lstat(part))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def leaving(root: Path, entry: Entry) -> Iterator[BinaryIO]:
    """A file that is read, and is as it was listed, before and after."""
    file = _place(root, entry.name)
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
        _check(source, file, entry)
        yield source
        _check(source, file, entry)


def _check(source: BinaryIO, file: Path, entry: Entry) -> None:
    found = os.fstat(source.fileno())
    if (found.st_size, int(found.st_mtime)) != (entry.size, entry.time) or not stat.S_ISREG(found.st_mode):
        raise Refused(f"{file} changed while it was copied. Copy it again when nothing writes to it")


def sha256(file: BinaryIO) -> str:
    """Return the SHA-256 of a file's whole content."""
    digest, at = hashlib.sha256(), 0
    while content := os.pread(file.fileno(), BLOCK, at):
        digest.update(content)
        at += len(content)
    return digest.hexdigest()


def link(root: Path, entry: Entry) -> None:
    """Create a link."""
    file = _place(root, entry.name)
    if entry.same(find(root, [entry.name])[0]):
        return
    if not _leads_inside(root, entry.name, entry.link):
        raise Refused(f"{file} would be a link to {entry.link[:80]}, which leads out of {root}")
    file.parent.mkdir(parents=True, exist_ok=True)
    made = _part(file)
    with contextlib.suppress(FileNotFoundError):
        made.unlink()
    made.symlink_to(entry.link)
    made.replace(file)


def _part(file: Path) -> Path:
    return file.with_name(PART + hashlib.sha256(os.fsencode(file.name)).hexdigest()[:24])


def _leads_inside(root: Path, name: str, target: str) -> bool:
    """Return whether a relative link leads to a place in the folder, by its text and through the present links."""
    place = os.path.join(os.path.dirname(name), target)
    return _stays(name, target) and is_in(Path(os.path.realpath(root / place)), root)


def _stays(name: str, target: str) -> bool:
    """Return whether a link leads to a place in the folder, whatever else is there. It goes up first, not above the folder, and then only down: a
    folder on its way down may be a link. (As `prepare.unpack` has it for archives.)"""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    return not target.startswith("/") and "\0" not in target and up <= name.count("/") and ".." not in steps[up:]


def _is_name(name: str) -> bool:
    parts = name.split("/")
    return not ({"", ".", ".."} & set(parts) or "\0" in name or parts[-1].startswith(PART))


def _place(root: Path, name: str) -> Path:
    """Return the path of an entry: never outside the folder, also not through links in it."""
    if not _is_name(name):
        raise Refused(f"the name {name[:80]!r} is not one of a file in the folder")
    file = root / name
    if not is_in(Path(os.path.realpath(file.parent)), root):
        raise Refused(f"{file} is reached through a link that leads out of {root}")
    return file


def is_in(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in (path, *path.parents)
