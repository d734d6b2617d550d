"""`trn cp`: files between this machine and the shared file systems of a cluster, through the stack's bucket.
 The cluster's side is a program (`shell/copying.py`), which runs for one request at a time: on the head node by Run Command, or in a pod.
Each object of the bucket is compared with the SHA-256 that its sender names, and deleted when it has arrived. What has arrived stays where
it is if a copy is interrupted: the next one sends the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import posixpath
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import buckets, presigned, quote, shell
from trainium_cdk.jobs.patience import ONE_QUESTION, Patience
from trainium_cdk.jobs.shell import copying
from trainium_cdk.outputs.contract import COPIES

if TYPE_CHECKING:
    from trainium_cdk.jobs.backend import Backend

Entry = list[Any]
Piece = list[int]
Object = dict[str, Any]

OBJECT = 64 * 2**20
"""Bytes of an object."""
MOST_PIECES = 500
"""Files of an object."""
MOST_FILES = 100_000
_BATCH = 8
"""Objects of a request."""
_CLOSED = ("jobs", "environments", "done")
"""The jobs' own folders on the shared file system, in which nothing is written."""


@dataclass(frozen=True)
class Survey:
    """What a copy has to do.

    Attributes:
        source, target: the folders, on their side.
        entries: of the source; `names`: of the same files in the target.
        have: bytes of each that are in the target; -1: all.
        left_out: what is no file, with the reason.
        free: bytes of the target's file system.
    """

    source: str
    target: str
    entries: list[Entry]
    names: list[str]
    have: list[int]
    left_out: list[str]
    free: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry[1] for entry in self.entries)

    @property
    def todo(self) -> int:
        """Bytes that are still to be copied."""
        return sum(entry[1] - there for entry, there in zip(self.entries, self.have, strict=True) if there >= 0)

    @property
    def complete(self) -> int:
        """Files that are in the target already."""
        return sum(there < 0 for there in self.have)

    def batches(self) -> Iterator[tuple[list[Entry], list[Entry], list[list[Piece]]]]:
        """The entries of the source and of the target, and the pieces of each object, of one request after the other."""
        objects = self._objects()
        while batch := list(itertools.islice(objects, _BATCH)):
            yield self._of(batch)
        pairs = enumerate(zip(self.entries, self.have, strict=True))
        if links := [[index, 0, 0] for index, (entry, there) in pairs if entry[4] and there >= 0]:
            yield self._of([], links)

    def _objects(self) -> Iterator[list[Piece]]:
        pieces: list[Piece] = []
        room = OBJECT
        for index, (entry, offset) in enumerate(zip(self.entries, self.have, strict=True)):
            while offset >= 0 and not entry[4]:
                length = min(entry[1] - offset, room)
                pieces.append([index, offset, length])
                offset, room = offset + length, room - length
                if not room or len(pieces) == MOST_PIECES:
                    yield pieces
                    pieces, room = [], OBJECT
                if offset == entry[1]:
                    break
        if pieces:
            yield pieces

    def _of(
        self, batch: list[list[Piece]], links: Sequence[Piece] = ()
    ) -> tuple[list[Entry], list[Entry], list[list[Piece]]]:
        used = sorted({piece[0] for pieces in [*batch, links] for piece in pieces})
        number = {index: n for n, index in enumerate(used)}
        here = [self.entries[i] for i in used]
        there = [[self.names[i], *self.entries[i][1:]] for i in used]
        return here, there, [[[number[i], offset, length] for i, offset, length in pieces] for pieces in batch]


class Copy:
    """Copies with one cluster.

    Args:
        image: of the pods, on Kubernetes: with Python and the AWS CLI. Default: the cluster's.
        progress: called with a number of bytes that have been sent or received.
    """

    def __init__(
        self, backend: Backend[Any], *, image: str | None = None, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._backend, self._image, self._progress = backend, image, progress
        cluster = backend.cluster
        if not cluster.bucket:
            raise JobError(f"{cluster.stack} has no bucket to copy through. Deploy it with a bucket")
        self._bucket, self._prefix = cluster.bucket, f"{COPIES}{secrets.token_hex(16)}"

    def plan_upload(self, source: Path, target: str) -> Survey:
        """What is to be copied to the cluster.

        Args:
            source: a folder, whose content goes into `target`, or a file.
            target: an absolute path on a shared file system. For a file: its new name, or a folder, which exists or ends with a slash.

        Raises:
            JobError: it cannot be copied.
            TransportError: the cluster, or the bucket, cannot be reached.
        """
        self._shared(target)
        with _refusals():
            found = copying.list_files(source, MOST_FILES)
        return self._arriving(found, target)

    def _arriving(self, found: dict[str, Any], target: str) -> Survey:
        """What is to be copied to the cluster, of what was found elsewhere (as `copying.list_files` has it)."""
        path, entries = self._shared(target), found["entries"]
        name = "" if found["folder"] else entries[0][0]
        into = target.endswith("/")
        folder = path if found["folder"] or into else posixpath.dirname(path)
        reply = self._ask("have", path, folder, entries=entries, name=name, into=into)
        names = [entry[0] for entry in entries]
        if not reply["into"]:
            path, names = posixpath.dirname(path), [posixpath.basename(path)]
        return Survey(found["root"], path, entries, names, reply["have"], found["left_out"], reply["free"])

    def plan_download(self, source: str, target: Path | str) -> Survey:
        """What is to be copied to this machine. Arguments and errors as of `plan_upload`, with the sides exchanged: only text ends with a slash."""
        path = self._shared(source)
        found = self._ask("list", path, most=MOST_FILES)
        entries: list[Entry] = found["entries"]
        root, names = Path(target), [entry[0] for entry in entries]
        if not found["folder"]:
            path = posixpath.dirname(path)
            if not (root.is_dir() or str(target).endswith("/")):
                root, names = root.parent, [root.name]
        if root.exists() and not root.is_dir():
            raise JobError(f"{root} is a file. Give a folder")
        with _refusals():
            there = copying.have(root, ([name, *entry[1:]] for name, entry in zip(names, entries, strict=True)))
            return Survey(path, str(root), entries, names, there, found["left_out"], copying.free(root.absolute()))

    def upload(self, survey: Survey) -> None:
        """Copy to the cluster. Raises as `plan_upload` does."""
        with self._objects() as objects, ThreadPoolExecutor(1) as node, ThreadPoolExecutor(copying.AT_ONCE) as pool:
            running: list[tuple[Future[Any], list[Object]]] = []

            def arrive() -> None:
                taken, there = running.pop(0)
                taken.result()
                objects.arrived(there)

            for entries, named, made in self._batches(survey, objects):
                contents = partial(self._put, Path(survey.source), entries)
                for one, digest in zip(made, pool.map(contents, made), strict=True):
                    one["sha256"] = digest
                if running:
                    arrive()
                running.append((node.submit(self._ask, "take", survey.target, entries=named, objects=made), made))
            if running:
                arrive()

    def download(self, survey: Survey) -> None:
        """Copy to this machine. Raises as `plan_download` does."""
        root = Path(survey.target)
        with (
            _refusals(),
            self._objects() as objects,
            ThreadPoolExecutor(1) as node,
            ThreadPoolExecutor(copying.AT_ONCE) as pool,
        ):
            waiting: list[tuple[Future[Any], list[Entry], list[Object]]] = []

            def arrive() -> None:
                given, named, made = waiting.pop(0)
                digests = given.result()["sha256"]
                for some, wanted in zip(batched(made), batched(digests), strict=True):
                    for one, content in zip(some, pool.map(self._get, some, wanted), strict=True):
                        copying.append(root, named, one["pieces"], content)
                copying.link(root, named)
                objects.arrived(made)

            root.mkdir(parents=True, exist_ok=True)
            for entries, named, made in self._batches(survey, objects):
                given = node.submit(self._ask, "give", survey.source, entries=entries, objects=made)
                waiting.append((given, named, made))
                if len(waiting) > 1:
                    arrive()
            while waiting:
                arrive()

    def _batches(self, survey: Survey, objects: _Objects) -> Iterator[tuple[list[Entry], list[Entry], list[Object]]]:
        for entries, named, batch in survey.batches():
            made: list[Object] = [{"key": secrets.token_hex(8), "pieces": pieces} for pieces in batch]
            objects.begun(made)
            yield entries, named, made

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

    def _ask(self, what: str, path: str, folder: str = "", **fields: Any) -> dict[str, Any]:
        """The cluster's response to a request.

        Args:
            folder: is created for the jobs' user, where it takes more permissions.
            fields: of the request. With `of`, the address of another bucket, the objects are there.
        """
        cluster = self._backend.cluster
        closed = (
            [f"{cluster.shared_dir}/{cluster.folder}/{name}" for name in _CLOSED] if what in ("have", "take") else []
        )
        objects_here = () if "of" in fields else fields.get("objects", ())
        reply, keys = secrets.token_hex(8), [str(one["key"]) for one in objects_here]
        read, written = (keys, [reply]) if what == "take" else ([], [*keys, reply])
        theirs: Callable[[], dict[str, str]] = dict
        if "of" in fields:
            theirs = partial(buckets.addresses, fields["of"], what, fields["objects"], cluster.region)
        asked = {"do": what, "path": path, "places": cluster.mount_dirs, "not_in": closed, "reply": reply, **fields}
        request = json.dumps(asked)
        with self._reaching_bucket(), self._objects() as objects:
            if len(request) > copying.INLINE:
                one: Object = {"key": secrets.token_hex(8)}
                objects.begun([one])
                key = f"{self._prefix}/{one['key']}"
                self._s3.put_object(Bucket=self._bucket, Key=key, Body=request)
                digest = hashlib.sha256(request.encode()).hexdigest()
                request = json.dumps({"at": one["key"], "sha256": digest, "reply": reply})
                read.append(one["key"])
            printed = Patience(ONE_QUESTION, sleep=self._backend.sleep).ask(
                lambda: self._run(request, read, written, folder, theirs)
            )
            found: dict[str, Any] = json.loads(printed.rpartition(copying.PRINTED)[2])
            if "at" in found:
                objects.begun([{"key": reply}])
                found = json.loads(self._get({"key": reply}, str(found["sha256"]), quiet=True))
        if "refused" in found:
            raise JobError(found["refused"])
        return found

    def _run(
        self,
        request: str,
        read: Sequence[str],
        written: Sequence[str],
        folder: str,
        theirs: Callable[[], dict[str, str]],
    ) -> str:
        """The cluster's side, which may read and write these objects: by presigned addresses where a script can be private, and else (in a pod)
        with its own identity."""
        program = quote.words((shell.read("copying.py").decode(), f"s3://{self._bucket}/{self._prefix}"))
        if not self._backend.private_scripts:
            script = f"exec python3 -c {program} {quote.word(request)}"
            return self._backend.run_shared(script, image=self._image, folder=folder)
        addresses = theirs()
        for key in read:
            addresses[key] = presigned.presigned(self._s3, "get_object", self._bucket, f"{self._prefix}/{key}")
        for key in written:
            addresses[key] = presigned.presigned(self._s3, "put_object", self._bucket, f"{self._prefix}/{key}")
        given = f"{request}\n{json.dumps(addresses)}"
        script = f"printf %s {quote.word(given)} | python3 -I -c {program}"
        return self._backend.run_shared(script, image=self._image, folder=folder, private=True)

    @cached_property
    def _s3(self) -> Any:
        return presigned.presigning(self._backend.cluster.region)

    def _put(self, root: Path, entries: list[Entry], one: Object) -> str:
        with _refusals():
            content = copying.read(root, entries, one["pieces"])
        with self._reaching_bucket():
            self._s3.upload_fileobj(
                io.BytesIO(content), self._bucket, f"{self._prefix}/{one['key']}", Callback=self._progress
            )
        return hashlib.sha256(content).hexdigest()

    def _get(self, one: Object, digest: str, *, quiet: bool = False) -> bytes:
        content, key = io.BytesIO(), f"{self._prefix}/{one['key']}"
        with self._reaching_bucket():
            self._s3.download_fileobj(self._bucket, key, content, Callback=None if quiet else self._progress)
        if hashlib.sha256(content.getbuffer()).hexdigest() != digest:
            address = f"s3://{self._bucket}/{key}"
            raise TransportError(f"{address} is not what the cluster sent: it was replaced or damaged", again=False)
        return content.getvalue()

    def _reaching_bucket(self) -> AbstractContextManager[None]:
        return aws_errors_as(TransportError, f"cannot copy through s3://{self._bucket}/{self._prefix}/")

    @contextlib.contextmanager
    def _objects(self) -> Iterator[_Objects]:
        made = _Objects(lambda keys: self._delete([f"{self._prefix}/{key}" for key in keys]))
        try:
            yield made
        finally:
            made.arrived(list(made.there.values()))

    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects; what the caller may not delete expires after a day."""
        objects = [{"Key": key} for key in keys]
        with contextlib.suppress(*failures()):
            self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})


class _Objects:
    """The objects that are in the bucket, and are deleted when they have arrived, or at the end of the copy."""

    def __init__(self, delete: Callable[[list[str]], None]) -> None:
        self.there: dict[str, Object] = {}
        self._delete = delete

    def begun(self, objects: Sequence[Object]) -> None:
        self.there |= {str(one["key"]): one for one in objects}

    def arrived(self, objects: Sequence[Object]) -> None:
        if objects:
            self._delete([str(self.there.pop(one["key"])["key"]) for one in objects])


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Errors of the files on this machine as a JobError."""
    try:
        yield
    except copying.Refused as e:
        raise JobError(str(e)) from None
    except OSError as e:
        raise JobError(f"{e.filename or 'the file system of this machine'}: {e.strerror}") from None


T = TypeVar("T")


def batched(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many items as are in memory at once, one group after the other."""
    for first in range(0, len(items), copying.AT_ONCE):
        yield items[first : first + copying.AT_ONCE]
