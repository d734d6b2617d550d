"""`trn cp` between a bucket of the user's and a shared file system: the cluster itself reads and writes the bucket, at addresses that the
caller signs, and no file passes through this machine. As `aws s3 sync` does, it copies what has another size or is newer, and deletes nothing."""

from __future__ import annotations

import itertools
import posixpath

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import buckets
from trainium_cdk.jobs.buckets import Address
from trainium_cdk.jobs.copy import MOST_FILES, Copy, CopyPlan
from trainium_cdk.runner.requests import Entry, Listing


class BucketCopy(Copy):
    """Copies between S3 and one cluster, with the caller's permissions."""

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
