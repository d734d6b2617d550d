"""Sending the folder of a submission (`trn submit --workdir DIR`): one object of the stack's bucket, which all jobs with the same files fetch.

It is named after the SHA-256 of the tar archive in it, which nodes compare: other jobs may write to the bucket. The bucket deletes it in time,
so a submission sends again what is old.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from trainium_cdk._aws import client, code_and_message, describe_error, failures
from trainium_cdk.client.jobs.commits import Commit
from trainium_cdk.client.jobs.presigned import presigned, presigning
from trainium_cdk.description.outputs.contract import CODE, CODE_DAYS
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.text import counted

_SENT_AGAIN = dt.timedelta(days=CODE_DAYS / 2)
_DATE = 946_684_800
"""Time of all files, in seconds since 1970: the same files are the same archive. ZIP archives, as wheels are, know no time before 1980."""


Kind = Literal["file", "program", "link"]


@dataclass(frozen=True)
class ArchiveEntry:
    """One file of the folder: `digest` is the SHA-256 of its content, or of a link's target."""

    name: str
    kind: Kind
    digest: str
    size: int


@dataclass(frozen=True)
class Workdir:
    """A folder as it is sent.

    Attributes:
        digest: of all entries: the same files give the same digest.
        left_out: names that ignore files, or their content (credentials, caches), leave out, at most ten.
        commit: None if it is in no git repository.
    """

    folder: Path
    entries: tuple[ArchiveEntry, ...] = field(repr=False)
    digest: str
    left_out: tuple[str, ...] = ()
    commit: Commit | None = field(default=None, repr=False, compare=False)

    @cached_property
    def archive(self) -> str:
        """The SHA-256 of its archive: what is sent. Raises as `archive.digest_of`."""
        return digest_of(self)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def __str__(self) -> str:
        left = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        commit = f", {self.commit}" if self.commit else ""
        return f"{self.folder}: {counted(len(self.entries), 'file')}, {self.size:,} bytes{commit}{left}"


class Sent(NamedTuple):
    """The files and the packed bytes (`size`) of a folder that was sent; 0 if it was there already."""

    files: int = 0
    size: int = 0


class _Hash:
    """A file-like object that computes the digest of an archive."""

    def __init__(self, out: Any = None) -> None:
        self.found, self._out = hashlib.sha256(), out

    def write(self, piece: bytes) -> int:
        self.found.update(piece)
        if self._out:
            self._out.write(piece)
        return len(piece)


def digest_of(workdir: Workdir) -> str:
    """The SHA-256 of a folder's archive.

    Raises:
        JobError: a file has changed since it was read.
    """
    made = _Hash()
    _write(workdir, made)
    return made.found.hexdigest()


def key_of(digest: str) -> str:
    """The key of the object in the stack's bucket."""
    return f"{CODE}/{digest}.tar.gz"


def send(workdir: Workdir, bucket: str, region: str) -> Sent:
    """Send a folder, unless the bucket has it.

    Raises:
        JobError: a file has changed since it was read.
        TransportError: AWS cannot be reached, or does not allow it.
    """
    if not bucket:
        raise JobError("the stack has no bucket to send the workdir through. Deploy it with a bucket")
    key = key_of(workdir.archive)
    try:
        s3 = client("s3", region)
        if _stays(s3, bucket, key):
            return Sent()
        with tempfile.TemporaryFile() as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                _write(workdir, _Hash(packed))
            size = file.tell()
            file.seek(0)
            s3.upload_fileobj(file, bucket, key)
        return Sent(len(workdir.entries), size)
    except failures() as e:
        raise TransportError(
            f"cannot send {workdir.folder} to s3://{bucket}/{CODE}: {describe_error(e)}. Nothing was submitted"
        ) from None


def addresses(workdir: Workdir, bucket: str, region: str) -> dict[str, str]:
    """A presigned address of a folder's object, by its digest: secret, and not for a job's files.

    A head node gives its credentials to no job's user, so a submission fetches the folder there by it.

    Raises:
        TransportError: there are no credentials to sign with.
    """
    try:
        address = presigned(presigning(region), "get_object", bucket, key_of(workdir.archive))
    except failures() as e:
        raise TransportError(f"cannot read s3://{bucket}/{CODE}: {describe_error(e)}") from None
    return {workdir.archive: address}


def content_of(file: Path, link: bool) -> bytes:
    """The content of a file, or the target of a link."""
    try:
        return os.fsencode(file.readlink()) if link else file.read_bytes()
    except OSError as e:
        raise JobError(f"cannot read {file}: {e.strerror}. Name it in .trnignore, or make it readable") from None


def _write(workdir: Workdir, out: _Hash) -> None:
    with tarfile.open(fileobj=cast(Any, out), mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for entry in workdir.entries:
            content = content_of(workdir.folder / entry.name, entry.kind == "link")
            if hashlib.sha256(content).hexdigest() != entry.digest:
                raise JobError(f"{entry.name} changed while the workdir was sent. Submit again")
            member = tarfile.TarInfo(entry.name)
            member.mtime, member.mode = _DATE, 0o755 if entry.kind == "program" else 0o644
            if entry.kind == "link":
                member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(content)
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def _stays(s3: Any, bucket: str, key: str) -> bool:
    """Return whether the bucket has an object, and keeps it until a job that is submitted now has fetched it."""
    try:
        written: dt.datetime = s3.head_object(Bucket=bucket, Key=key)["LastModified"]
    except failures() as e:
        # S3 reports a missing object as a denied request to a caller that may not list the whole bucket, as the role of a head node
        if code_and_message(e)[0] not in ("404", "NoSuchKey", "403", "AccessDenied"):
            raise
        return False
    return dt.datetime.now(dt.UTC) - written < _SENT_AGAIN
