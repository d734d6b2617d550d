"""The files of `trn cp`, on both sides of the bucket: this machine imports this module, the cluster runs it as a program.

copying.py ADDRESS REQUEST: the request is JSON, the objects are below that s3:// address. The response is printed. A large request or
response is such an object: {"at": its name, "sha256": ...}. Runs with the Python of nodes and images (3.8 and newer).

A request with "of", the address of a bucket of the user's, reads or writes that bucket's objects: "at" is the key of one there.

copying.py ADDRESS: the request is the first line of the input. The rest is JSON: the objects' names, each with a presigned address, which is used
instead of an identity of the node. Addresses are secrets: no message has one.

An entry is a file: [name, size, mtime, mode, target of a link or ""]. A piece is [entry, offset, length]; an object of the bucket has one
or more pieces, one after the other. A file that is not complete has a name of its own, which tells its source's size and time: the next
copy of that source goes on at its end.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PART = ".trn-part-"
PRINTED = "trn-copy "
"""What comes before the response: a login message may come before that."""
INLINE = 10_000
"""Characters of a response that is printed, and of a request that is an argument."""
AT_ONCE = 4
"""Objects in memory."""
TRIES, SECONDS = 4, 60.0
"""Of a request to a presigned address, and the longest time without an answer."""


_WHY = {
    403: ". Your credentials may have ended, or lack a permission there",
    412: ". It changed while it was copied: copy it again",
}


class Refused(Exception):
    """What cannot be copied, and why."""


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
    entries, left = [], []

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


def _entry(file: Path, name: str, found: os.stat_result) -> list[Any]:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Refused(f"the name {os.fsencode(name)!r} is not UTF-8 text. Rename it") from None
    if stat.S_ISLNK(found.st_mode):
        return [name, 0, 0, 0, os.readlink(file)]
    return [name, found.st_size, int(found.st_mtime), found.st_mode & 0o777, ""]


def _leads_inside(root: Path, name: str, target: str) -> bool:
    """Whether a relative link leads to a place in the folder, by its text and through what is there now."""
    place = os.path.join(os.path.dirname(name), target)
    real = Path(os.path.realpath(root / place))
    return not os.path.isabs(target) and os.path.normpath(place).split("/")[0] != ".." and _is_in(real, root)


def _place(root: Path, name: str) -> Path:
    """Where an entry is: never outside the folder, also not through links in it."""
    parts = name.split("/")
    if not name or name.startswith("/") or ".." in parts or "" in parts or "\0" in name or parts[-1].startswith(PART):
        raise Refused(f"the name {name[:80]!r} is not one of a file in the folder")
    file = root / name
    real, top = os.path.realpath(file.parent), os.path.realpath(root)
    if os.path.commonpath([real, top]) != top:
        raise Refused(f"{file} is reached through a link that leads out of {root}")
    return file


def _part(file: Path, entry: list[Any]) -> Path:
    return file.with_name(f"{PART}{hashlib.sha256(os.fsencode(file.name)).hexdigest()[:24]}-{entry[1]}-{entry[2]}")


def have(root: Path, entries: Iterable[list[Any]]) -> list[int]:
    """The bytes that are there of each file; -1 where it is complete, by its size and time. Parts of other versions are deleted."""
    found: list[int] = []
    there: dict[Path, list[str]] = {}
    for entry in entries:
        file = _place(root, entry[0])
        if file.is_dir() and not file.is_symlink():
            raise Refused(f"{file} is a folder, and would be replaced by a file. Move it away")
        if entry[4]:
            found.append(-1 if file.is_symlink() and os.readlink(file) == entry[4] else 0)
            continue
        now = file.lstat() if file.is_file() and not file.is_symlink() else None
        if now and (now.st_size, int(now.st_mtime)) == (entry[1], entry[2]):
            found.append(-1)
            continue
        if file.parent not in there:
            there[file.parent] = (
                [n for n in os.listdir(file.parent) if n.startswith(PART)] if file.parent.is_dir() else []
            )
        part = _part(file, entry)
        for name in there[file.parent]:
            if name != part.name and name.rsplit("-", 2)[0] == part.name.rsplit("-", 2)[0]:
                part.with_name(name).unlink()
        found.append(part.stat().st_size if part.name in there[file.parent] else 0)
    return found


def read(root: Path, entries: list[list[Any]], pieces: Iterable[list[int]]) -> bytes:
    """The content of an object."""
    made = []
    for index, offset, length in pieces:
        entry = entries[index]
        with _place(root, entry[0]).open("rb") as source:
            source.seek(offset)
            made.append(source.read(length))
            found = os.fstat(source.fileno())
        if len(made[-1]) != length or (found.st_size, int(found.st_mtime)) != (entry[1], entry[2]):
            raise Refused(f"{root / entry[0]} changed while it was copied. Copy it again when nothing writes to it")
    return b"".join(made)


def append(root: Path, entries: list[list[Any]], pieces: Iterable[list[int]], content: bytes) -> None:
    """Write the content of an object. What is there already is not written again."""
    begin = 0
    for index, offset, length in pieces:
        entry, piece = entries[index], content[begin : begin + length]
        begin += length
        file = _place(root, entry[0])
        if have(root, [entry]) == [-1]:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        part = _part(file, entry)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(part, flags, 0o600), "ab") as out:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(out.fileno()).st_size
            if not offset <= size <= offset + length:
                raise Refused(
                    f"{part} has {size:,} bytes, and not {offset:,}: another copy writes to it, or it was changed. Delete it"
                )
            out.write(piece[size - offset :])
            out.flush()
            if offset + length == entry[1]:
                os.fchmod(out.fileno(), entry[3])
                os.fsync(out.fileno())
                os.utime(part, (entry[2], entry[2]))
                part.replace(file)


def link(root: Path, entries: Iterable[list[Any]]) -> None:
    """Create the links among the entries."""
    for entry in entries:
        file = _place(root, entry[0])
        if not entry[4] or have(root, [entry]) == [-1]:
            continue
        if not _leads_inside(root, entry[0], entry[4]):
            raise Refused(f"{file} would be a link to {entry[4][:80]}, which leads out of {root}")
        file.parent.mkdir(parents=True, exist_ok=True)
        made = _part(file, entry)
        made.unlink() if made.is_symlink() else None
        made.symlink_to(entry[4])
        made.replace(file)


def free(path: Path) -> int:
    """Bytes that are free on the file system of a folder, or of the folder above it that exists."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _allowed(request: dict[str, Any], root: str) -> Path:
    """The path of a request on this machine: it is on a shared file system, also where it is reached through links."""
    path, places = Path(root + request["path"]), [Path(root + place) for place in request["places"]]
    real = Path(os.path.realpath(path))
    for place in places:
        if _is_in(real, place) and not (root or place.is_mount()):
            raise Refused(f"{place} is not mounted on this machine")
    if not any(_is_in(real, place) for place in places):
        raise Refused(f"{path} leads to {real}, which is not on a shared file system")
    if any(_is_in(real, Path(root + ours)) for ours in request["not_in"]):
        raise Refused(f"{path} is among the jobs' own files. Choose another folder")
    return path


def _is_in(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(folder)) in (path, *path.parents)


class Bucket:
    """The objects of a copy."""

    def __init__(self, address: str, presigned: dict[str, str] | None = None) -> None:
        """Args:
        address: of the objects, s3://bucket/prefix.
        presigned: addresses of single objects, by name. None: the AWS CLI, with the identity of this machine.
        """
        self._address, self._presigned = address, presigned

    def fetch(self, name: str, digest: str) -> bytes:
        """An object with that SHA-256."""
        if self._presigned is None:
            content = aws("s3", "cp", "--only-show-errors", f"{self._address}/{name}", "-")
        else:
            content = self._ask("GET", name, self._presigned.get(name, ""))
        if hashlib.sha256(content).hexdigest() != digest:
            raise Refused(f"{self._address}/{name} is not what was sent: it was replaced or damaged")
        return content

    def store(self, name: str, content: bytes) -> str:
        """Store an object; its SHA-256."""
        if self._presigned is None:
            aws("s3", "cp", "--only-show-errors", "-", f"{self._address}/{name}", content=content)
        else:
            self._ask("PUT", name, self._presigned.get(name, ""), content)
        return hashlib.sha256(content).hexdigest()

    def part(self, one: dict[str, Any]) -> bytes:
        """A range of an object, as long as the object is the one that was listed."""
        _, offset, length = one["pieces"][0]
        if not length:
            return b""
        span = {"Range": f"bytes={offset}-{offset + length - 1}", "If-Match": one["etag"]}
        if self._presigned is None:
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, "part")
                aws(*self._of("get-object", one), "--range", span["Range"], "--if-match", one["etag"], file)
                content = Path(file).read_bytes()
        else:
            content = self._ask("GET", one["at"], self._presigned.get(one["key"], ""), headers=span)
        if len(content) != length:
            raise Refused(f"{self._address}/{one['at']} is not as long as it was. Copy it again")
        return content

    def put(self, one: dict[str, Any], content: bytes) -> str:
        """Store an object, or a part of one; its SHA-256."""
        if self._presigned is None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "part")
                file.write_bytes(content)
                more = ["--upload-id", one["upload"], "--part-number", str(one["part"])] if "upload" in one else []
                aws(*self._of("upload-part" if more else "put-object", one), *more, "--body", str(file))
        else:
            kind = {"Content-Type": "binary/octet-stream"}
            self._ask("PUT", one["at"], self._presigned.get(one["key"], ""), content, kind)
        return hashlib.sha256(content).hexdigest()

    def _of(self, action: str, one: dict[str, Any]) -> list[str]:
        bucket = self._address[len("s3://") :]
        return ["s3api", action, f"--bucket={bucket}", f"--key={one['at']}"]

    def elsewhere(self, address: str) -> Bucket:
        """Another bucket, with the presigned addresses of the same request."""
        return Bucket(address, self._presigned)

    def _ask(
        self, method: str, name: str, url: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        """One request, which is repeated where S3 does not answer. No error has the address."""
        if not url.startswith(("https://", "http://")):
            raise Refused(f"there is no presigned address of {self._address}/{name}")
        for attempt in range(TRIES):
            request = urllib.request.Request(url, content, headers or {}, method=method)  # noqa: S310  checked above
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as found:  # noqa: S310
                    answer: bytes = found.read()
                    return answer
            except (OSError, http.client.HTTPException) as e:
                code = e.code if isinstance(e, urllib.error.HTTPError) else 500
                if code < 500 or attempt + 1 == TRIES:
                    late = _WHY.get(code, "")
                    why = e if isinstance(e, OSError) else type(e).__name__
                    raise Refused(f"{method} {self._address}/{name}: {why}{late}") from None
            time.sleep(2**attempt)
        return b""


def respond(request: dict[str, Any], bucket: Bucket, root: str = "") -> dict[str, Any]:
    """The response to a request of the same version's client.

    Args:
        root: goes before every path of the request.
    """
    path, what = _allowed(request, root), request["do"]
    if what == "list":
        return list_files(path, request["most"])
    entries = request["entries"]
    if what == "have":
        into = not request["name"] or request["into"] or path.is_dir()
        folder = path if into else path.parent
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{folder} is a file. Choose another folder")
        if request["name"]:
            entries[0][0] = request["name"] if into else path.name
        return {"into": into, "have": have(folder, entries), "free": free(folder)}
    digests: list[str] = []
    theirs = bucket.elsewhere(request["of"]) if "of" in request else None

    def fetched(one: dict[str, Any]) -> bytes:
        return theirs.part(one) if theirs else bucket.fetch(one["key"], one["sha256"])

    def stored(one: dict[str, Any]) -> str:
        content = read(path, entries, one["pieces"])
        return theirs.put(one, content) if theirs else bucket.store(one["key"], content)

    if what == "take":
        link(path, entries)
    for group in _groups(request["objects"]):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            if what == "take":
                for one, content in zip(group, pool.map(fetched, group)):
                    append(path, entries, one["pieces"], content)
            else:
                digests += pool.map(stored, group)
    return {"sha256": digests}


def _groups(objects: list[Any]) -> Iterator[list[Any]]:
    for first in range(0, len(objects), AT_ONCE):
        yield objects[first : first + AT_ONCE]


def aws(*arguments: str, content: bytes = b"") -> bytes:
    """The output of the AWS CLI."""
    try:
        done = subprocess.run(["aws", *arguments], input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise Refused("there is no AWS CLI. On Kubernetes, give an image that has it (--image)") from None
    if done.returncode:
        raise Refused(f"aws {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()[-400:]}")
    return done.stdout


def main(address: str, request: str = "") -> None:
    presigned: dict[str, str] | None = None
    if not request:
        request, given = sys.stdin.read().split("\n", 1)
        presigned = json.loads(given)
    asked, bucket = json.loads(request), Bucket(address, presigned)
    reply = asked["reply"]
    if "sha256" in asked:
        asked = json.loads(bucket.fetch(asked["at"], asked["sha256"]))
    try:
        response = respond(asked, bucket, os.environ.get("TRN_SHARED_ROOT", ""))
    except Refused as e:
        response = {"refused": str(e)}
    except OSError as e:
        response = {"refused": f"{e.filename or 'the file system'}: {e.strerror}"}
    text = json.dumps(response)
    if len(text) > INLINE:
        text = json.dumps({"at": reply, "sha256": bucket.store(reply, text.encode())})
    print(PRINTED + text)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as e:
        sys.exit(f"trn: {e}")
