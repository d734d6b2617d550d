"""Unpacking an untrusted tar archive: nothing is written outside the folder, through a link, or beyond a size."""

from __future__ import annotations

import lzma
import os
import posixpath
import shutil
import stat
import tarfile
import zlib
from pathlib import Path
from tarfile import InvalidHeaderError, ReadError, TruncatedHeaderError  # type: ignore[attr-defined]
from typing import Any

from ..errors import Refused

CHUNK = 1 << 20
TIMES, SMALL = 100, 1 << 30
"""An archive may grow that many times when it is unpacked, and to that size in any case."""


class Damaged(Exception):
    """The file is not an archive, or not whole."""


class Member(tarfile.TarInfo):
    """Raises ReadError for a damaged header, which tarfile would take for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Member:
        try:
            return super().fromtarfile(tarfile)
        except (InvalidHeaderError, TruncatedHeaderError) as e:
            raise ReadError(f"after {tarfile.offset} bytes: {e}") from None


def unpack(
    stream: Any, folder: Path, compressed: int, most: int | None = None, entries: int | None = None
) -> tuple[int, int]:
    """Unpack a stream into a folder that does not exist yet. Returns the numbers of entries and of bytes.

    Args:
        stream: has `read`; the archive may be compressed.
        compressed: its bytes.
        most, entries: bytes and entries that it can have, where that is known.

    Raises:
        Refused: it has what no archive of data has, or would need too much space.
        Damaged: see there.
        OSError: a file could not be written.
    """
    folder.mkdir()
    try:
        return _unpack(stream, str(folder), compressed, most, entries)
    except getattr(tarfile, "FilterError", Refused) as e:
        raise Refused(str(e)) from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as e:
        raise Damaged(str(e)) from None


def _unpack(stream: Any, folder: str, compressed: int, most: int | None, entries: int | None) -> tuple[int, int]:
    free = shutil.disk_usage(folder).free
    limit = min(free * 95 // 100, max(SMALL, TIMES * compressed))
    count = size = 0
    real = {""}
    with tarfile.open(fileobj=stream, mode="r|*", bufsize=CHUNK, tarinfo=Member) as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if name == ".":
                continue
            size += member.size
            count += 1
            if (most is not None and size > most) or (entries is not None and count > entries):
                raise Damaged(f"it has more than was sent: {count:,} entries, {size:,} bytes")
            if size > limit:
                raise Refused(
                    f"it is more than {limit:,} bytes unpacked, and {compressed:,} bytes packed; {free:,} bytes are free. Free "
                    "space, or unpack an archive that you trust yourself"
                )
            _place(tar, member, name, folder, real)
    return count, size


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: str, real: set[str]) -> None:
    """Write one member of an archive. Nothing is ever written through a link; `real` are folders that are known not to be links."""
    if name.startswith("/") or name.split("/")[0] == "..":
        raise Refused(f"{member.name!r} is outside the folder")
    _make_folder(folder, posixpath.dirname(name), real)
    path = os.path.join(folder, name)
    if member.isdir():
        _make_folder(folder, name, real)
        return
    if not (member.isreg() or member.issym() or member.islnk()):
        raise Refused(f"{name!r} is a device or a pipe")
    if os.path.isdir(path) and not os.path.islink(path):
        raise Refused(f"{name!r} is a folder and a file")
    first = posixpath.normpath(member.linkname) if member.islnk() else ""
    target = _inside(name, member.linkname) if member.issym() else ""
    if member.islnk() and (first.startswith(("/", "../")) or not _regular(folder, first, real)):
        raise Refused(f"{name!r} is a link to {member.linkname!r}, which is not a file of the archive")
    member.name = name
    if hasattr(tarfile, "data_filter"):  # Python's own rules in addition, if it has them
        member = tarfile.data_filter(member, folder)
    if first == name:
        return
    if os.path.lexists(path):
        os.unlink(path)
    if target:
        os.symlink(target, path)
    elif first:
        os.link(os.path.join(folder, first), path, follow_symlinks=False)
    else:
        _write(tar, member, path)


def _make_folder(folder: str, name: str, real: set[str]) -> None:
    parts = name.split("/") if name else []
    for i in range(1, len(parts) + 1):
        at = "/".join(parts[:i])
        if at in real:
            continue
        try:
            os.mkdir(os.path.join(folder, at))
        except FileExistsError:
            raise Refused(f"{at!r} is a folder and a file or a link") from None
        real.add(at)


def _inside(name: str, target: str) -> str:
    """The target of a symbolic link. It may go up to the archive's top and then down, but not up again: a folder on its way
    down may be a link."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    if target.startswith("/") or up > name.count("/") or ".." in steps[up:]:
        raise Refused(f"{name!r} is a link to {target!r}, which is outside the folder")
    return target


def _regular(folder: str, name: str, real: set[str]) -> bool:
    if posixpath.dirname(name) not in real:
        return False
    try:
        return stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)
    except FileNotFoundError:
        return False


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    mode = 0o755 if (member.mode or 0) & 0o100 else 0o644
    content = tar.extractfile(member)
    if content is None:
        raise ReadError(f"{member.name!r} has no content")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    if os.path.getsize(path) != member.size:
        raise ReadError(f"{member.name!r} is cut short")
    os.utime(path, (member.mtime, member.mtime))
