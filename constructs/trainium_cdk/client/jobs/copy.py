"""`trn cp`: files between this machine and the shared file systems of a cluster, through the stack's bucket: a sync by size and time.

The cluster's side is the runner (`runner.head.copying`), which answers one request at a time: on the head node by Run Command, or in a pod. Each file
is one object of the bucket, is compared with the SHA-256 that its sender names, and is deleted there when it has arrived. Files that have
arrived stay where they are if a copy is interrupted: the next one sends the others.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk.client.jobs import buckets, quote
from trainium_cdk.client.jobs.backend import ONE_QUESTION, Backend, Patience
from trainium_cdk.client.jobs.buckets import Address, Upload
from trainium_cdk.description.outputs.contract import COPIES
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import copying
from trainium_cdk.runner.requests import (
    Entry,
    FindFiles,
    GiveFiles,
    Incoming,
    ListFiles,
    Listing,
    Outgoing,
    SentFile,
    TakeFiles,
)

MOST_FILES = 100_000
_AT_ONCE = 8
_MOST_OBJECTS, _MOST_BYTES, _MOST_NAMES = 1000, 2 * 2**30, 10_000
"""Limits of a request: files and bytes that are moved; a larger file is alone. Names of files that are looked for."""
_SMALL = 8 * 2**20
"""Bytes of a file that are one request, and in memory. Larger files are boto3's to transfer."""
_SECONDS, _SPARE, _SLOWEST = 600, 300, 20_000_000
"""Seconds of a request; those for which an address is valid after it; and bytes a second, for which it has more time."""

T = TypeVar("T")


@dataclass(frozen=True)
class CopyPlan:
    """The plan of a copy: its files, and the missing ones.

    Attributes:
        source, target: the folders, on their side.
        entries: of the source; `names`: of the same files in the target.
        missing: the numbers of those that are not in the target.
        left_out: what is not a file, with the reason.
        free: bytes of the target's file system.
    """

    source: str
    target: str
    entries: Sequence[Entry]
    names: list[str]
    missing: list[int]
    left_out: tuple[str, ...]
    free: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def todo(self) -> int:
        """Bytes that are still to be copied."""
        return sum(self.entries[n].size for n in self.missing)

    @property
    def complete(self) -> int:
        """Files that are in the target already."""
        return len(self.entries) - len(self.missing)

    @property
    def links(self) -> list[Entry]:
        """The links that are not in the target, with their names there."""
        return [self.arriving(n) for n in self.missing if self.entries[n].link]

    def arriving(self, number: int) -> Entry:
        """An entry with its name in the target."""
        return self.entries[number]._replace(name=self.names[number])

    def batches(self) -> Iterator[list[int]]:
        """The numbers of the missing files that one request moves."""
        batch: list[int] = []
        size = 0
        for number in self.missing:
            entry = self.entries[number]
            if entry.link:
                continue
            if batch and (len(batch) == _MOST_OBJECTS or size + entry.size > _MOST_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(number)
            size += entry.size
        if batch:
            yield batch


class Copy:
    """Copies with one cluster.

    Args:
        image: of the pods, on Kubernetes: with Python. Default: the cluster's.
        progress: called with a number of bytes that have been sent or received.
    """

    def __init__(
        self, backend: Backend, *, image: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._backend, self._image, self._progress = backend, image, progress
        cluster = backend.cluster
        if not cluster.bucket:
            raise JobError(f"{cluster.stack} has no bucket to copy through. Deploy it with a bucket")
        self._bucket, self._prefix = cluster.bucket, f"{COPIES}{secrets.token_hex(16)}"
        self._there: set[int] = set()
        self._stopped = threading.Event()

    def plan_upload(self, source: Path, target: str) -> CopyPlan:
        """Plan a copy from this machine to the cluster.

        Args:
            source: a folder, whose content goes into `target`, or a file.
            target: an absolute path on a shared file system. For a file: its new name, or a folder, which exists or ends with a slash.

        Raises:
            JobError: it cannot be copied.
            TransportError: the cluster, or the bucket, cannot be reached.
        """
        self._shared(target)
        with _refusals():
            return self._arriving(copying.entries_of(source, MOST_FILES), target)

    def _arriving(self, found: Listing, target: str) -> CopyPlan:
        """Plan a copy to the cluster of files that are listed already."""
        path, entries = self._shared(target), found.entries
        into, name = target.endswith("/"), "" if found.folder else entries[0].name
        folder = path if found.folder or into else posixpath.dirname(path)
        names, there = [entry.name for entry in entries], list[Entry | None]()
        for some in list(_groups(names, _MOST_NAMES)) or [[]]:
            reply = self._ask(FindFiles(path, self._places, tuple(some), name, into), folder=folder)
            there += reply.there
        if not reply.into:
            path, names = posixpath.dirname(path), [posixpath.basename(path)]
        missing = _missing(entries, there)
        return CopyPlan(found.root, path, entries, names, missing, found.left_out, reply.free)

    def plan_download(self, source: str, target: Path | str) -> CopyPlan:
        """Plan a copy to this machine. Arguments and errors as of `plan_upload`, with the sides exchanged. Only text ends with a slash."""
        path, found = self._listed(source)
        entries = found.entries
        root, names = Path(target), [entry.name for entry in entries]
        if not found.folder and not (root.is_dir() or str(target).endswith("/")):
            root, names = root.parent, [root.name]
        if root.exists() and not root.is_dir():
            raise JobError(f"{root} is a file. Give a folder")
        with _refusals():
            missing, free = _missing(entries, copying.find(root, names)), copying.free(root.absolute())
        return CopyPlan(path, str(root), entries, names, missing, found.left_out, free)

    def _listed(self, source: str) -> tuple[str, Listing]:
        """A folder of the cluster, and its files."""
        path = self._shared(source)
        found: Listing = self._ask(ListFiles(path, self._places, MOST_FILES))
        with _refusals():
            found = replace(found, entries=copying.checked(found.entries, MOST_FILES))
        if not found.folder and [one.name for one in found.entries] != [posixpath.basename(path)]:
            raise JobError(f"the cluster's list of files is not about {path}")
        return path if found.folder else posixpath.dirname(path), found

    def upload(self, survey: CopyPlan) -> None:
        """Copy to the cluster. Raises as `plan_upload` does."""
        root = Path(survey.source)
        with self._working() as pool:
            for batch in survey.batches():
                sent = pool.map(lambda n: self._put(root, survey.entries[n], self._at(n)), batch)
                self._take(survey, batch, self._s3, [self._at(n) for n in batch], [{"sha256": one} for one in sent])
                self._delete(batch)
        for some in _groups(survey.links, _MOST_NAMES):
            self._ask(TakeFiles(survey.target, self._places, tuple(map(Incoming, some))))

    def download(self, survey: CopyPlan) -> None:
        """Copy to this machine. Raises as `plan_download` does."""
        root = Path(survey.target)
        with _refusals(), self._working() as pool:
            root.mkdir(parents=True, exist_ok=True)
            for batch in survey.batches():
                given = self._give(survey, batch, self._s3, [self._at(n) for n in batch])
                list(
                    pool.map(lambda n, one: self._get(root, survey.arriving(n), self._at(n), one.sha256), batch, given)
                )
                self._delete(batch)
            for entry in survey.links:
                copying.link(root, entry)

    def _take(
        self, survey: CopyPlan, batch: Sequence[int], s3: Any, places: Sequence[Address], marks: Sequence[Any]
    ) -> None:
        """Let the cluster fetch files from these places. `marks`: what each object must have, a SHA-256 or an ETag."""
        entries = [survey.arriving(n) for n in batch]
        seconds, files = _seconds(entries), []
        with aws_errors_as(TransportError, f"cannot read s3://{places[0].bucket}"):
            for entry, at, mark in zip(entries, places, marks, strict=True):
                address = buckets.presigned(s3, "get_object", *at, seconds=seconds + _SPARE)
                files.append(Incoming(entry, address, **mark))
        self._ask(TakeFiles(survey.target, self._places, tuple(files)), seconds=seconds, private=True)

    def _give(self, survey: CopyPlan, batch: Sequence[int], s3: Any, places: Sequence[Address]) -> Sequence[SentFile]:
        """Let the cluster send files to these places; what it says of each."""
        entries = [survey.entries[n] for n in batch]
        seconds, uploads = _seconds(entries), []
        with aws_errors_as(TransportError, f"cannot write to s3://{places[0].bucket}"), contextlib.ExitStack() as begun:
            for entry, at in zip(entries, places, strict=True):
                uploads.append(Upload(s3, at, entry.size, seconds + _SPARE))
                begun.callback(uploads[-1].abort)
            files = tuple(Outgoing(entry, one.to) for entry, one in zip(entries, uploads, strict=True))
            given: Sequence[SentFile] = self._ask(
                GiveFiles(survey.source, self._places, files), seconds=seconds, private=True
            )
            for one, told in zip(uploads, given, strict=True):  # `requests.read_answer` has counted them
                one.complete(told.etags)
        return given

    def _shared(self, path: str) -> str:
        """An absolute path, which is on a shared file system by its name; the cluster checks where links lead.

        Raises:
            JobError: it is not.
        """
        quote.check(path, "path")
        plain = posixpath.normpath(path)
        places = self._backend.cluster.mount_dirs
        if ".." in path.split("/") or not any(plain == place or plain.startswith(f"{place}/") for place in places):
            raise JobError(
                f"{path[:200]} is not on a shared file system of {self._backend.cluster.stack}. Give "
                f"{' or '.join(f'cluster:{place}/...' for place in places)}, or JOB:... for a path in a job's directory"
            )
        return plain

    def _ask(self, given: Any, **options: Any) -> Any:
        """The cluster's answer to a request; options as of `Backend.ask`."""
        return Patience(ONE_QUESTION, sleep=self._backend.sleep).ask(
            lambda: self._backend.ask(given, image=self._image, **options)
        )

    @property
    def _places(self) -> tuple[str, ...]:
        return tuple(self._backend.cluster.mount_dirs)

    @cached_property
    def _s3(self) -> Any:
        return buckets.presigning(self._backend.cluster.region)

    def _at(self, number: int) -> Address:
        """The place of an entry in the bucket."""
        self._there.add(number)
        return Address(self._bucket, f"{self._prefix}/{number}")

    def _put(self, root: Path, entry: Entry, at: Address) -> str:
        """Send a file into the bucket; its SHA-256."""
        with _refusals(), copying.leaving(root, entry) as file, self._reaching_bucket():
            digest = copying.sha256(file)
            if entry.size <= _SMALL:
                self._s3.put_object(Bucket=at.bucket, Key=at.key, Body=file.read())
                self._moved(entry.size)
                return digest
            with open(file.fileno(), "rb", closefd=False) as content:  # boto3 closes what it has sent
                self._s3.upload_fileobj(content, *at, Callback=self._moved)
        return digest

    def _get(self, root: Path, entry: Entry, at: Address, digest: str) -> None:
        """Receive a file from the bucket."""
        with _refusals(), copying.arriving(root, entry, digest) as out, self._reaching_bucket():
            if entry.size <= _SMALL:
                out.write(self._s3.get_object(Bucket=at.bucket, Key=at.key)["Body"].read(entry.size + 1))
                self._moved(entry.size)
            elif self._s3.head_object(Bucket=at.bucket, Key=at.key)["ContentLength"] == entry.size:
                self._s3.download_fileobj(*at, out, Callback=self._moved)

    def _moved(self, count: int) -> None:
        if self._stopped.is_set():
            raise CancelledError
        self._progress(count)

    def _reaching_bucket(self) -> AbstractContextManager[None]:
        return aws_errors_as(TransportError, f"cannot copy through s3://{self._bucket}/{self._prefix}/")

    @contextlib.contextmanager
    def _working(self) -> Iterator[ThreadPoolExecutor]:
        """Threads that send or receive. Afterwards, or when it is interrupted, they stop, and nothing is left in the bucket."""
        self._stopped.clear()
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            yield pool
        except BaseException:
            self._stopped.set()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            self._delete(sorted(self._there))

    def _delete(self, numbers: Sequence[int]) -> None:
        """Delete objects; what the caller may not delete expires after a day."""
        for some in _groups(numbers, 1000):
            objects = [{"Key": f"{self._prefix}/{number}"} for number in some]
            with contextlib.suppress(*failures()):
                self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})
            self._there.difference_update(some)


def _missing(entries: Sequence[Entry], there: Sequence[Entry | None]) -> list[int]:
    return [n for n, (entry, other) in enumerate(zip(entries, there, strict=True)) if not entry.same(other)]


def _seconds(entries: Sequence[Entry]) -> int:
    """Return the seconds for which a request that moves these files may run."""
    return _SECONDS + sum(entry.size for entry in entries) // _SLOWEST


def _groups(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), most):
        yield items[first : first + most]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raise errors of the files on this machine as a JobError."""
    try:
        yield
    except Refused as e:
        raise JobError(str(e)) from None
    except OSError as e:
        raise JobError(f"{e.filename or 'the file system of this machine'}: {e.strerror or e}") from None


class BucketCopy(Copy):
    """Copies between a bucket of the user's and a shared file system. The cluster itself reads and writes the bucket, at addresses that the caller
    signs, and no file passes through this machine. As `aws s3 sync` does, it copies what has another size or is newer, and deletes nothing."""

    _etags: dict[str, str]
    """Objects to fetch, by name."""

    def plan_fetch(self, source: str, target: str) -> CopyPlan:
        """Plan a copy from S3: of one object, or of all below a prefix. Arguments and errors as of `plan_upload`."""
        at = Address.of(source)
        first = next(iter(buckets.list_objects(at, self._region)), None)
        single = first if first and first.key == at.key and not at.key.endswith("/") else None
        prefix = at.key[: at.key.rfind("/") + 1] if single else _folder(at.key)
        below = (one for one in buckets.list_objects(Address(at.bucket, prefix), self._region) if one.key[-1] != "/")
        found = [single] if single else list(itertools.islice(below, MOST_FILES + 1))
        if not found:
            raise JobError(f"there is nothing at {at}. Check the bucket and the prefix")
        if len(found) > MOST_FILES:
            raise JobError(f"{at} has more than {MOST_FILES:,} objects. Copy prefixes of it, one after the other")
        entries: list[Entry] = []
        left_out: list[str] = []
        self._etags = {}
        for one in found:
            name = one.key.removeprefix(prefix)
            if {"", ".", ".."} & set(name.split("/")):
                left_out.append(f"{one.key} (no name of a file)")
                continue
            entries.append(Entry(name, one.size, one.time, 0o644, ""))
            self._etags[name] = one.etag
        root = str(Address(at.bucket, prefix))
        return self._arriving(Listing(root, not single, tuple(entries), tuple(left_out)), target)

    def fetch(self, survey: CopyPlan) -> None:
        """Copy to the cluster. Raises as `plan_fetch` does."""
        at = Address.of(survey.source)
        s3 = buckets.client(at.bucket, self._region)
        for batch in survey.batches():
            names = [survey.entries[n].name for n in batch]
            places = [Address(at.bucket, at.key + name) for name in names]
            self._take(survey, batch, s3, places, [{"etag": self._etags[name]} for name in names])
            self._progress(sum(survey.entries[n].size for n in batch))

    def plan_store(self, source: str, target: str) -> CopyPlan:
        """Plan a copy to S3. Arguments and errors as of `plan_fetch`, with the sides exchanged."""
        at = Address.of(target)
        path, found = self._listed(source)
        entries = [entry for entry in found.entries if not entry.link]
        left_out = (*found.left_out, *(f"{entry.name} (a link)" for entry in found.entries if entry.link))
        names = [entry.name for entry in entries]
        if found.folder:
            at = Address(at.bucket, _folder(at.key))
        elif at.key and not at.key.endswith("/"):
            at, names = Address(at.bucket, at.key[: at.key.rfind("/") + 1]), [posixpath.basename(at.key)]
        wanted = {at.key + name for name in names}
        there = {one.key: one for one in buckets.list_objects(at, self._region) if one.key in wanted}
        missing = [
            n
            for n, (name, entry) in enumerate(zip(names, entries, strict=True))
            if not ((one := there.get(at.key + name)) and one.size == entry.size and one.time >= entry.time)
        ]
        return CopyPlan(path, str(at), entries, names, missing, left_out, free=2**63)

    def store(self, survey: CopyPlan) -> None:
        """Copy to S3. Raises as `plan_store` does."""
        at = Address.of(survey.target)
        s3 = buckets.client(at.bucket, self._region)
        for batch in survey.batches():
            self._give(survey, batch, s3, [Address(at.bucket, at.key + survey.names[n]) for n in batch])
            self._progress(sum(survey.entries[n].size for n in batch))

    @property
    def _region(self) -> str:
        return self._backend.cluster.region


def _folder(key: str) -> str:
    """The prefix of what is below a key."""
    return f"{key.rstrip('/')}/" if key.rstrip("/") else ""
