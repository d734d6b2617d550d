"""`trn cp` between a bucket of the user's and a shared file system: the cluster itself reads and writes the bucket, and no file passes
through this machine. As `aws s3 sync` does, it copies what has another size or is newer, and deletes nothing."""

from __future__ import annotations

import itertools
import posixpath
import secrets
from collections.abc import Iterator
from typing import Any

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import buckets
from trainium_cdk.jobs.buckets import Address
from trainium_cdk.jobs.copy import MOST_FILES, OBJECT, Copy, Entry, Survey

Object = dict[str, Any]

_MOST_BYTES, _MOST_OBJECTS, _MOST_PARTS = 2 * 2**30, 200, 10_000
"""Of a request, and of an upload in S3."""


class BucketCopy(Copy):
    """Copies between S3 and one cluster. On Slurm with the caller's permissions, which sign addresses; on Kubernetes with those of the jobs'
    role (`eks.data_buckets`). The caller lists the bucket on both."""

    _etags: dict[str, str]
    """Of what is to be fetched, by name."""

    def plan_fetch(self, source: str, target: str) -> Survey:
        """What is to be copied from S3: one object, or all below a prefix. Arguments and errors as of `plan_upload`."""
        at = Address.of(source)
        first = next(iter(buckets.list_objects(at, self._region)), None)
        single = first if first and first.key == at.key and not at.key.endswith("/") else None
        prefix = at.key[: at.key.rfind("/") + 1] if single else _folder(at.key)
        below = buckets.list_objects(Address(at.bucket, prefix), self._region)
        found = (
            [single] if single else list(itertools.islice((one for one in below if one.key[-1] != "/"), MOST_FILES + 1))
        )
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
            entries.append([name, one.size, one.time, 0o644, ""])
            self._etags[name] = one.etag
        root = str(Address(at.bucket, prefix))
        return self._arriving({"root": root, "folder": not single, "entries": entries, "left_out": left_out}, target)

    def fetch(self, survey: Survey) -> None:
        """Copy to the cluster. Raises as `plan_fetch` does."""
        at = Address.of(survey.source)
        for batch in _batches(survey, OBJECT):
            here, there, pieces = survey._of(batch)
            made = [
                {
                    "key": secrets.token_hex(8),
                    "at": at.key + here[n][0],
                    "etag": self._etags[here[n][0]],
                    "pieces": [[n, *rest]],
                }
                for [[n, *rest]] in pieces
            ]
            self._ask("take", survey.target, entries=there, objects=made, of=f"{buckets.SCHEME}{at.bucket}")
            self._progress(sum(length for [[_, _, length]] in pieces))

    def plan_store(self, source: str, target: str) -> Survey:
        """What is to be copied to S3. Arguments and errors as of `plan_fetch`, with the sides exchanged."""
        path, at = self._shared(source), Address.of(target)
        found = self._ask("list", path, most=MOST_FILES)
        entries = [entry for entry in found["entries"] if not entry[4]]
        left_out = [*found["left_out"], *(f"{entry[0]} (a link)" for entry in found["entries"] if entry[4])]
        names = [entry[0] for entry in entries]
        if found["folder"]:
            at = Address(at.bucket, _folder(at.key))
        else:
            path = posixpath.dirname(path)
            if at.key and not at.key.endswith("/"):
                at, names = Address(at.bucket, at.key[: at.key.rfind("/") + 1]), [posixpath.basename(at.key)]
        wanted = {at.key + name for name in names}
        there = {one.key: one for one in buckets.list_objects(at, self._region) if one.key in wanted}
        have = [
            -1 if (one := there.get(at.key + name)) and one.size == entry[1] and one.time >= entry[2] else 0
            for name, entry in zip(names, entries, strict=True)
        ]
        return Survey(path, str(at), entries, names, have, left_out, free=2**63)

    def store(self, survey: Survey) -> None:
        """Copy to S3. Raises as `plan_store` does."""
        at = Address.of(survey.target)
        of = f"{buckets.SCHEME}{at.bucket}"
        s3 = buckets.client(at.bucket, self._region)
        for batch in _batches(survey, survey.size):
            here, there, pieces = survey._of(batch)
            made: list[Object] = []
            for [[n, *rest]] in pieces:
                made.append({"key": secrets.token_hex(8), "at": at.key + there[n][0], "pieces": [[n, *rest]]})
            if len(made) > 1 or here[0][1] <= OBJECT:
                self._ask("give", survey.source, entries=here, objects=made, of=of)
                self._progress(sum(entry[1] for entry in here))
                continue
            with buckets.upload(s3, at.bucket, made[0]["at"]) as id:
                for some in _parts(here[0][1]):
                    parts = [
                        {**made[0], "key": secrets.token_hex(8), "upload": id, "part": n, "pieces": [piece]}
                        for n, piece in some
                    ]
                    self._ask("give", survey.source, entries=here, objects=parts, of=of)
                    self._progress(sum(piece[2] for _, piece in some))

    @property
    def _region(self) -> str:
        return self._backend.cluster.region


def _folder(key: str) -> str:
    """The prefix of what is below a key."""
    return f"{key.rstrip('/')}/" if key.rstrip("/") else ""


def _batches(survey: Survey, most: int) -> Iterator[list[list[list[int]]]]:
    """The pieces of each request: each is one object, or so many bytes of one at most. An object larger than `OBJECT` is in no request
    with others, unless in pieces."""
    batch: list[list[list[int]]] = []
    size = 0
    for index, (entry, offset) in enumerate(zip(survey.entries, survey.have, strict=True)):
        if offset < 0:
            continue
        while True:
            length = min(entry[1] - offset, most)
            if batch and (size + length > _MOST_BYTES or len(batch) == _MOST_OBJECTS or length > OBJECT):
                yield batch
                batch, size = [], 0
            batch.append([[index, offset, length]])
            offset, size = offset + length, size + length
            if length > OBJECT:
                size = _MOST_BYTES + 1
            if offset == entry[1]:
                break
    if batch:
        yield batch


def _parts(size: int) -> Iterator[list[tuple[int, list[int]]]]:
    """Numbers and pieces of an upload's parts, as many as one request has."""
    each = max(OBJECT, -(-size // _MOST_PARTS))
    parts = [(number, [0, offset, min(each, size - offset)]) for number, offset in enumerate(range(0, size, each), 1)]
    step = max(1, _MOST_BYTES // each)
    for first in range(0, len(parts), step):
        yield parts[first : first + step]
