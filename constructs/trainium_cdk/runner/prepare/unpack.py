"""Unpacking an untrusted tar archive: nothing is written outside the folder, through a link, or beyond a size. And the step of `prepare` that unpacks the
files of a submission's `--workdir`: one object of the bucket, named by the SHA-256 of the archive in it; other jobs may write there.

A head node gives no job its identity, so a submission fetches a small folder there by a presigned address.
Where that is not possible, a node with an identity does, in `prepare`.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import lzma
import os
import posixpath
import shutil
import stat
import subprocess
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import InvalidHeaderError, ReadError, TruncatedHeaderError  # type: ignore[attr-defined]
from typing import IO, Any

from ..errors import Refused
from . import Failed, Here, NotFetched, check_room, remove, say

CHUNK = 1 << 20
TIMES, SMALL = 100, 1 << 30
"""An archive may grow that many times when it is unpacked, and to that size in any case."""


class Damaged(Exception):
    """The file is not an archive, or not whole."""


class Hashed:
    """A stream that is read, and the SHA-256 of what was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._found = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._found.update(piece)
        return piece

    def digest(self) -> str:
        """Read the rest, and return the digest of all of it."""
        while self.read(CHUNK):
            pass
        return self._found.hexdigest()


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


# --- the workdir of a submission --------------------------------------------------------------------------------------------------------

AT_ONCE = 50_000_000
"""Bytes of a folder that a head node fetches while a job is submitted."""
SECONDS = 60.0
MOST_FILES = 20_000
"""Most files of a folder (`jobs.workdir.MAX_FILES`)."""


def code(here: Here, uri: str, digest: str, size: int) -> None:
    """Put the folder's files into the job's `code`: all, or none.

    Args:
        size: bytes of all files.
    """
    target = here.job / "code"
    if target.is_dir():
        return
    if here.check and (size > AT_ONCE or digest not in here.addresses):
        raise NotFetched("code")
    part = here.job / "code.part"
    remove(part)
    check_room("the workdir", size, here.job)
    try:
        with _by_address(here.addresses[digest]) if here.check else _by_node(here, uri) as packed:
            found = Hashed(gzip.GzipFile(fileobj=packed))  # type: ignore[arg-type]
            count, _ = unpack(found, part, size, size, MOST_FILES)
            if found.digest() != digest:
                raise Refused("the workdir has another content than was sent. Submit the job again")
        part.rename(target)
    except (Damaged, EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise Refused(f"the workdir has another content than was sent: {e}") from None
    finally:
        remove(part)
    say(f"{count} files of the workdir are in {target}")


@contextmanager
def _by_node(here: Here, uri: str) -> Iterator[IO[bytes]]:
    """The object, with the node's identity."""
    words = ["aws", "s3", "cp", "--only-show-errors", uri, "-"]
    try:
        aws = subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused(f"the workdir cannot be fetched: {here.without('aws')}") from None
    with aws:
        try:
            yield aws.stdout  # type: ignore[misc]
        except (Damaged, EOFError, Refused):
            try:
                failed = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
            except subprocess.TimeoutExpired:
                aws.kill()
                failed = 0
            if not failed:
                raise
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again") from None
        if aws.wait():
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again")


@contextmanager
def _by_address(address: str) -> Iterator[IO[bytes]]:
    """The object, by the client's presigned address."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as found:  # noqa: S310  signed by our client
            yield found
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as e:  # none has the address
        say(f"the workdir is fetched on another node: {e}")
        raise NotFetched("code") from None
