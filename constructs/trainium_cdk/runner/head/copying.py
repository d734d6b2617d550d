"""`trn cp` on the cluster. Files go through S3, each as one object, at addresses that the client has signed: no identity of the cluster's is
used. An address is a secret: no message has one."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
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
from ..words import shared_root
from . import copied_files
from .copied_files import BLOCK, arriving, is_in, leaving, link, sha256, spans

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
    """See `copied_files.list_files`."""
    return copied_files.list_files(_shared_path(asked.path, asked.places), asked.most)


def find_files(cluster: requests.Cluster, asked: requests.FindFiles) -> requests.FoundFiles:
    """See `requests.FindFiles`."""
    path = _path_to_write(asked.path, asked.places, cluster)
    into = not asked.name or asked.into or path.is_dir()
    folder = path if into else path.parent
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file. Choose another folder")
    names = [asked.name if into else path.name] if asked.name else asked.names
    return requests.FoundFiles(into, copied_files.find(folder, names), copied_files.free(folder))


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
