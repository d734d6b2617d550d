"""`trn cp` on the cluster. Files go through S3, each as one object, at addresses that the client has signed: no identity of the cluster's is
used. An address is a secret: no message has one.

A file takes its name when it is complete, and nothing leaves its folder, also not through links.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from .. import requests
from ..errors import Refused
from ..files import shared_root
from ..requests import Entry, Listing

AT_ONCE = 8
"""Requests to S3."""
TRIES, SECONDS = 4, 60.0
"""Attempts of a request to S3 that gets no answer, or no further; and the longest silence."""
_CLOSED = ("jobs", "environments", "done")
"""The jobs' own folders, in which nothing is written."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WHY = {
    400: ". Your credentials may have ended: renew them, and copy again",  # ExpiredToken, of the session that signed
    403: ". Your credentials may have ended, or lack a permission there",
    412: ". It changed while it was copied: copy it again",
}


_MapFunction = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map()`, or the `map()` of a pool of threads."""


def list_files(_: requests.Cluster, asked: requests.ListFiles) -> requests.Listing:
    """See `entries_of`."""
    return entries_of(_shared_path(asked.path, asked.places), asked.most)


def find_files(cluster: requests.Cluster, asked: requests.FindFiles) -> requests.FoundFiles:
    """See `requests.FindFiles`."""
    path = _path_to_write(asked.path, asked.places, cluster)
    into = not asked.name or asked.into or path.is_dir()
    folder = path if into else path.parent
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file. Choose another folder")
    names = [asked.name if into else path.name] if asked.name else asked.names
    return requests.FoundFiles(into, find(folder, names), free(folder))


def take_files(cluster: requests.Cluster, asked: requests.TakeFiles) -> None:
    """Fetch files from S3, and create links."""
    _move(_take, _path_to_write(asked.path, asked.places, cluster), asked.files)


def give_files(_: requests.Cluster, asked: requests.GiveFiles) -> list[requests.SentFile]:
    """Send files to S3."""
    return _move(_give, _shared_path(asked.path, asked.places), asked.files)


def _move(move: Callable[[Path, Any, _MapFunction], Any], path: Path, files: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:  # small files at once; of a large one, its spans
            small = [pool.submit(move, path, one, map) if len(spans(one.entry.size)) == 1 else None for one in files]
            return [begun.result() if begun else move(path, one, pool.map) for begun, one in zip(small, files)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _take(root: Path, one: requests.Incoming, each: _MapFunction) -> None:
    entry = one.entry
    if entry.link:
        link(root, entry)
        return
    with arriving(root, entry, one.sha256) as out:
        if entry.size:
            list(each(partial(_fetch, one.address, one.etag, out), spans(entry.size)))


def _give(root: Path, one: requests.Outgoing, each: _MapFunction) -> requests.SentFile:
    with leaving(root, one.entry) as source:
        etags = list(each(partial(_store, source), one.to))
        return requests.SentFile(sha256(source), tuple(etags))


def _shared_path(name: str, mounts: Iterable[str]) -> Path:
    """A path on a shared file system, also where it is reached through links. Raises Refused: it is not on one."""
    root = shared_root()
    path, places = Path(root + name), [Path(root + place) for place in mounts]
    real = Path(os.path.realpath(path))
    for place in places:
        if is_in(real, place) and not (root or place.is_mount()):
            raise Refused(f"{place} is not mounted on this machine")
    if not any(is_in(real, place) for place in places):
        raise Refused(f"{path} leads to {real}, which is not on a shared file system")
    return path


def _path_to_write(name: str, mounts: Iterable[str], cluster: requests.Cluster) -> Path:
    """The same, and not among the jobs' own files."""
    path = _shared_path(name, mounts)
    if any(is_in(Path(os.path.realpath(path)), cluster.trn / folder) for folder in _CLOSED):
        raise Refused(f"{path} is among the jobs' own files. Choose another folder")
    return path


def _fetch(url: str, etag: str, out: BinaryIO, span: tuple[int, int]) -> None:
    """Read a span of an object into the same place of a file. What was read is not asked for again."""
    at, end = span[0], sum(span)
    for attempt in range(TRIES):
        headers = {"Range": f"bytes={at}-{end - 1}", **({"If-Match": etag} if etag else {})}
        with _told("GET", url, attempt), _open(url, None, headers, "GET") as found:
            if found.status != http.client.PARTIAL_CONTENT:
                raise Refused(f"GET {_shown(url)}: the answer is not the part that was asked for")
            while content := found.read(min(BLOCK, end - at)):
                at += os.pwrite(out.fileno(), content, at)
        if at == end:
            return
    raise Refused(f"GET {_shown(url)}: it changed while it was copied. Copy it again")


def _store(source: BinaryIO, to: Sequence[Any]) -> str:
    """Write a span of a file as an object, or as a part of one; its ETag."""
    offset, length, url = to
    headers = {"Content-Type": "binary/octet-stream", "Content-Length": str(length)}
    for attempt in range(TRIES):
        with _told("PUT", url, attempt), _open(url, _blocks(source, offset, length), headers, "PUT") as found:
            return str(found.headers["ETag"])
    raise Refused(f"PUT {_shown(url)}: S3 does not answer")


def _blocks(source: BinaryIO, at: int, length: int) -> Iterator[bytes]:
    while length:
        content = os.pread(source.fileno(), min(BLOCK, length), at)
        if not content:
            raise Refused("a file became shorter while it was copied. Copy it again when nothing writes to it")
        yield content
        at, length = at + len(content), length - len(content)


def _open(url: str, content: Iterator[bytes] | None, headers: dict[str, str], method: str) -> Any:
    if not url.startswith(("https://", "http://")):
        raise Refused("there is no presigned address of an object")
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310  checked above
    return urllib.request.urlopen(request, timeout=SECONDS)  # noqa: S310


@contextlib.contextmanager
def _told(method: str, url: str, attempt: int) -> Iterator[None]:
    """Raise a refusal of S3 without the signed address. Where S3 may answer later, wait instead, until the last attempt."""
    try:
        yield
    except (OSError, http.client.HTTPException) as e:
        code = 500
        if isinstance(e, urllib.error.HTTPError):
            code = e.code
            e.close()
        if isinstance(e, OSError) and e.errno in _FULL:
            raise
        if code < 500 or attempt + 1 == TRIES:
            why = e if isinstance(e, OSError) else type(e).__name__
            raise Refused(f"{method} {_shown(url)}: {why}{_WHY.get(code, '')}") from None
        time.sleep(2**attempt)


def _shown(url: str) -> str:
    return url.partition("?")[0]


# --- the files, on either side: the client imports this, too ----------------------------------------------------------------------------

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


def entries_of(path: Path, most: int) -> Listing:
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
    folder on its way down may be a link. (As `prepare.fetching` has it for archives.)"""
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
