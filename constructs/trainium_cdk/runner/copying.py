"""`trn cp`: the cluster's side, and what this machine's side has in common with it. It runs without the rest of the runner, too.

    copying.py FILE     answers the request in a file; request and answer are as `packed` makes them

Files go through S3, each as one object, at addresses that the client has signed: no identity of the cluster's is used. An address is a secret:
no message has one. An entry is a file; as plain data, the list of its fields. A request has the `path` of a folder (or file) and the
`places` in which it must be, and in `do`:

    list    its files, as `list_files` has them. `most`: files
    have    which of some files are there: `names`, or one `name`, which goes `into` the folder or is the folder's last part
    take    `files` arrive: each has its entry, the address `from`, and a SHA-256, or the ETag that it must still have
    give    `files` are sent: each has its entry, and `to`: offset, length and address of each span; the answer has its SHA-256 and the spans' ETags
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import http.client
import json
import os
import stat
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

PART = ".trn-part-"
"""What the name of a file begins with until it is complete."""
PRINTED = "trn-copy "
"""What comes before the answer: a login message may come before that."""
SPAN = 64 * 2**20
"""Bytes of a file that one request to S3 reads or writes, at least."""
AT_ONCE = 8
TRIES, SECONDS = 4, 60.0
"""Of a request to S3 that gets no answer, or no further; and the longest silence."""
_BLOCK = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WHY = {
    403: ". Your credentials may have ended, or lack a permission there",
    412: ". It changed while it was copied: copy it again",
}


class Refused(Exception):
    """What cannot be copied, and why."""


class Entry(NamedTuple):
    """A file, or a link. `time`: of its last change, in seconds; `link`: where it leads; empty for a file."""

    name: str
    size: int
    time: int
    mode: int
    link: str

    def same(self, other: Entry | None) -> bool:
        """Whether the other one is this file already: by size and time, as `aws s3 sync` and rsync compare."""
        return other is not None and (self.size, self.time, self.link) == (other.size, other.time, other.link)


def packed(value: Any) -> str:
    """Plain data as one word of text."""
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


def unpacked(text: str) -> Any:
    """What was `packed`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def spans(size: int) -> list[tuple[int, int]]:
    """Offset and length of each part of a file that is one request: at most about 100, unless S3 (5 GiB each) needs more."""
    step = min(max(SPAN, -(-size // 100)), 5 * 2**30)
    return [(offset, min(step, size - offset)) for offset in range(0, size, step)] or [(0, 0)]


def list_files(path: Path, most: int) -> dict[str, Any]:
    """The entries of a folder, or of one file: with the folder that they are in, and what is left out."""
    if path.is_file():
        return {
            "root": str(path.parent),
            "folder": False,
            "entries": [_entry(path, path.name, path.stat())],
            "left_out": [],
        }
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
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                left.append(f"{relative} (no regular file)")
            elif stat.S_ISLNK(found.st_mode) and not _leads_inside(path, relative, os.readlink(file)):
                left.append(f"{relative} (a link that leads out of the folder)")
            else:
                entries.append(_entry(file, relative, found))
        if len(entries) > most:
            raise Refused(f"{path} has more than {most:,} files. Pack them into archives (tar)")
    return {"root": str(path), "folder": True, "entries": entries, "left_out": left}


def _entry(file: Path, name: str, found: os.stat_result) -> Entry:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Refused(f"the name {os.fsencode(name)!r} is not UTF-8 text. Rename it") from None
    if stat.S_ISLNK(found.st_mode):
        return Entry(name, 0, 0, 0, os.readlink(file))
    return Entry(name, found.st_size, int(found.st_mtime), found.st_mode & 0o777, "")


def find(root: Path, names: Iterable[str]) -> list[Entry | None]:
    """What is there by these names; None: nothing, or what a file may replace."""
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
    return found


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
    file.parent.mkdir(parents=True, exist_ok=True)
    part = _part(file)
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as out:
        if not _locked(out, part):
            raise Refused(f"{file} is being written by another copy. Copy it again when that has ended")
        try:
            out.truncate(0)
            yield out
            out.flush()
            if os.fstat(out.fileno()).st_size != entry.size or (digest and sha256(out) != digest):
                raise Refused(f"{file} is not what was sent: it was replaced or damaged on its way")
            os.fchmod(out.fileno(), entry.mode)
            os.fsync(out.fileno())
            os.utime(part, (entry.time, entry.time))
            part.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def _locked(out: BinaryIO, part: Path) -> bool:
    """Whether this copy alone writes the file, which is still there by that name."""
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
    """Of a file's whole content."""
    digest, at = hashlib.sha256(), 0
    while content := os.pread(file.fileno(), _BLOCK, at):
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
    """Whether a relative link leads to a place in the folder, by its text and through what is there now."""
    place = os.path.join(os.path.dirname(name), target)
    real = Path(os.path.realpath(root / place))
    return not os.path.isabs(target) and os.path.normpath(place).split("/")[0] != ".." and _is_in(real, root)


def _place(root: Path, name: str) -> Path:
    """Where an entry is: never outside the folder, also not through links in it."""
    parts = name.split("/")
    if not name or {"", ".", ".."} & set(parts) or "\0" in name or parts[-1].startswith(PART):
        raise Refused(f"the name {name[:80]!r} is not one of a file in the folder")
    file = root / name
    if not _is_in(Path(os.path.realpath(file.parent)), root):
        raise Refused(f"{file} is reached through a link that leads out of {root}")
    return file


def _is_in(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in (path, *path.parents)


def answer(request: dict[str, Any], root: str = "") -> dict[str, Any]:
    """The answer to a request of the same version's client. `root` goes before every path."""
    path = _allowed(request, root)
    if request["do"] == "list":
        return list_files(path, request["most"])
    if request["do"] == "have":
        into = not request["name"] or request["into"] or path.is_dir()
        folder = path if into else path.parent
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{folder} is a file. Choose another folder")
        names = [request["name"] if into else path.name] if request["name"] else request["names"]
        return {"into": into, "there": find(folder, names), "free": free(folder)}
    files = [(Entry(*one["entry"]), one) for one in request["files"]]
    move = {"take": _take, "give": _give}[request["do"]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:  # small files at once; of a large one, its spans
            small = [pool.submit(move, path, *file, map) if len(spans(file[0].size)) == 1 else None for file in files]
            moved = [one.result() if one else move(path, *file, pool.map) for one, file in zip(small, files)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {"files": moved}


_Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map`, or that of a pool."""


def _take(root: Path, entry: Entry, one: dict[str, Any], each: _Each) -> None:
    if entry.link:
        link(root, entry)
        return
    with arriving(root, entry, one.get("sha256", "")) as out:
        if entry.size:
            list(each(partial(_fetch, one["from"], one.get("etag", ""), out), spans(entry.size)))


def _give(root: Path, entry: Entry, one: dict[str, Any], each: _Each) -> dict[str, Any]:
    with leaving(root, entry) as source:
        etags = list(each(partial(_store, source), one["to"]))
        return {"sha256": sha256(source), "etags": etags}


def _allowed(request: dict[str, Any], root: str) -> Path:
    """The path of a request on this machine: it is on a shared file system, also where it is reached through links."""
    path, places = Path(root + request["path"]), [Path(root + place) for place in request["places"]]
    real = Path(os.path.realpath(path))
    for place in places:
        if _is_in(real, place) and not (root or place.is_mount()):
            raise Refused(f"{place} is not mounted on this machine")
    if not any(_is_in(real, place) for place in places):
        raise Refused(f"{path} leads to {real}, which is not on a shared file system")
    if any(_is_in(real, Path(root + ours)) for ours in request["closed"]):
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
            while content := found.read(min(_BLOCK, end - at)):
                at += os.pwrite(out.fileno(), content, at)
        if at == end:
            return
    raise Refused(f"GET {_shown(url)}: it is not as long as it was. Copy it again")


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
        content = os.pread(source.fileno(), min(_BLOCK, length), at)
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
    """What S3 refuses as an error without the address; what it may answer later is passed over until the last attempt."""
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


def main(file: str) -> None:
    request = unpacked(Path(file).read_text())
    try:
        told = answer(request, os.environ.get("TRN_SHARED_ROOT", ""))
    except Refused as e:
        told = {"refused": str(e)}
    except OSError as e:
        told = {"refused": f"{e.filename or 'the file system'}: {e.strerror or e}"}
    print(PRINTED + packed(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
