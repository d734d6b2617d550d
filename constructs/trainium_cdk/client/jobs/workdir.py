"""The folder of a submission (`trn submit --workdir DIR`): what of it is sent, and sending it; and its commit, as a job's copy of the folder has no
`.git`.

It is one object of the stack's bucket, which all jobs with the same files fetch. It is named after the SHA-256 of the tar archive in it, which
nodes compare: other jobs may write to the bucket. The bucket deletes it in time, so a submission sends again what is old.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import gzip
import hashlib
import io
import json
import os
import posixpath
import stat
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from trainium_cdk._aws import client, code_and_message, describe_error, failures
from trainium_cdk.client.jobs.buckets import presigned, presigning
from trainium_cdk.description.outputs.contract import CODE, CODE_DAYS
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_BYTES, MAX_FILES = 500_000_000, 20_000
"""Most bytes of all files together. Data and checkpoints belong on the shared file system."""
_IGNORE = (".gitignore", ".trnignore")
_NOT_SENT = frozenset({"__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"})

_SENT_AGAIN = dt.timedelta(days=CODE_DAYS / 2)
_DATE = 946_684_800
"""Time of all files, in seconds since 1970: the same files are the same archive. ZIP archives, as wheels are, know no time before 1980."""
MAX_DIFF_BYTES = 200_000
"""Most bytes of a diff that is recorded: the Secret of a job on Kubernetes has at most 1 MiB."""
_MAX_DIFF_FILES = 500
_GIT_SECONDS = 20
SECRETS = (".git", ".env", ".env.*", ".aws", ".ssh", ".gnupg", ".kube", ".netrc", ".pypirc")
"""Names that are left out at any depth: history and credentials. A line such as `!.env.example` in .dockerignore includes one."""


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
        """The SHA-256 of its archive: what is sent. Raises as `archive_digest`."""
        return archive_digest(self)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def __str__(self) -> str:
        left = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        commit = f", {self.commit}" if self.commit else ""
        return f"{self.folder}: {counted(len(self.entries), 'file')}, {self.size:,} bytes{commit}{left}"


class Commit(NamedTuple):
    """A commit, and the changes since. `diff`: of the files that are sent; None: there are more than are recorded."""

    id: str
    diff: bytes | None

    def __str__(self) -> str:
        changes = (
            ", and changes too large to be recorded"
            if self.diff is None
            else " and uncommitted changes" * bool(self.diff)
        )
        return f"commit {self.id[:12]}{changes}"


class Sent(NamedTuple):
    """The files and the packed bytes (`size`) of a folder that was sent; 0 if it was there already."""

    files: int = 0
    size: int = 0


def read(folder: Path) -> Workdir:
    """A folder without what `.gitignore` and `.trnignore` files leave out, nor credentials and caches.

    Raises:
        JobError: it is not a folder, cannot be read, is too large, or has a link that leads out of it.
    """
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise JobError(f"workdir is {folder}, which is not a folder. Give the folder of your code")
    entries: list[ArchiveEntry] = []
    left: list[str] = []
    by_top = Counter[str]()
    for file, name, mode in _walk(folder, left):
        entry = _entry(folder, file, name, mode)
        entries.append(entry)
        by_top[name.partition("/")[0]] += entry.size
        if by_top.total() > MAX_BYTES or len(entries) > MAX_FILES:
            most = ", ".join(f"{top} ({size:,} bytes)" for top, size in by_top.most_common(3))
            raise JobError(
                f"workdir {folder} has more than {MAX_BYTES:,} bytes, or more than {MAX_FILES:,} files; most so far are in {most}. Name what "
                "the job does not need in .trnignore, and put data on the shared file system (trn cp)"
            )
    if not entries:
        raise JobError(f"workdir {folder} has no files that are sent. Check its .gitignore and .trnignore")
    commit = read_commit(folder, {entry.name for entry in entries})
    return Workdir(folder, tuple(entries), _digest(entries), tuple(left[:10]), commit)


def _walk(folder: Path, left: list[str]) -> Iterator[tuple[Path, str, int]]:
    """The files of a folder, sorted, with their name in it and their mode. What is left out is added to `left`."""
    rules = [(above, found) for above in _above(folder) if (found := _rules(above))]

    def below(current: Path, rules: list[tuple[Path, GitIgnoreSpec]]) -> Iterator[tuple[Path, str, int]]:
        if current != folder and (found := _rules(current)):
            rules = [*rules, (current, found)]
        try:
            with os.scandir(current) as listed:
                children = sorted(listed, key=lambda child: child.name)
        except OSError as e:
            raise JobError(f"cannot read {current}: {e.strerror}. Name it in .trnignore, or make it readable") from None
        for child in children:
            file = Path(child.path)
            name, is_folder = file.relative_to(folder).as_posix(), child.is_dir(follow_symlinks=False)
            mode = child.stat(follow_symlinks=False).st_mode
            odd = not (is_folder or stat.S_ISREG(mode) or stat.S_ISLNK(mode))
            if is_secret(child.name) or child.name in _NOT_SENT or odd or _ignored(file, is_folder, rules):
                left.append(name + "/" * is_folder)
            elif is_folder:
                yield from below(file, rules)
            else:
                yield file, name, mode

    yield from below(folder, rules)


def _above(folder: Path) -> list[Path]:
    """The folder, after those above it that belong to the same git repository."""
    chain = [folder, *folder.parents]
    root = next((number for number, place in enumerate(chain) if (place / ".git").exists()), 0)
    return chain[root::-1]


def _rules(folder: Path) -> GitIgnoreSpec | None:
    lines: list[str] = []
    for file in (folder / name for name in _IGNORE):
        try:
            lines += file.read_text("utf-8-sig").splitlines() if file.is_file() else []
        except (OSError, UnicodeDecodeError) as e:
            raise JobError(f"cannot read {file}: {e}. Save it as UTF-8 text, or remove it") from None
    if not lines:
        return None
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as e:
        raise JobError(f"{folder}/.gitignore or .trnignore has an invalid pattern: {e}. Correct it") from None


def _ignored(file: Path, is_folder: bool, rules: list[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Return whether a file is ignored, as git decides: by the deepest ignore file with a matching line."""
    for place, spec in reversed(rules):
        found = spec.check_file(file.relative_to(place).as_posix() + "/" * is_folder).include
        if found is not None:
            return found
    return False


def _entry(folder: Path, file: Path, name: str, mode: int) -> ArchiveEntry:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise JobError(
            f"the file name {os.fsencode(name)!r} is not UTF-8. Rename it, or name it in .trnignore"
        ) from None
    if link := stat.S_ISLNK(mode):
        if leads_out(folder, name, str(file.readlink())):
            raise JobError(
                f"{name} is a link to {file.readlink()}, which leads out of {folder}. Put the file itself there, or name the link in "
                ".trnignore"
            )
    elif file.stat().st_size > MAX_BYTES:
        raise JobError(
            f"{name} has {file.stat().st_size:,} bytes; {MAX_BYTES:,} is the maximum of a workdir. Name it in .trnignore, and put it on the "
            "shared file system"
        )
    content = content_of(file, link)
    kind: Kind = "link" if link else "program" if mode & 0o111 else "file"
    return ArchiveEntry(name, kind, hashlib.sha256(content).hexdigest(), len(content))


def is_secret(path: str) -> bool:
    return any(fnmatch.fnmatchcase(part, name) for part in path.split("/") for name in SECRETS)


def leads_out(folder: Path, name: str, target: str) -> bool:
    """Return whether a link in a folder leads out of it: by its text, if the folder had another name, or on this machine."""
    steps = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return steps.split("/")[0] in ("", "..") or not Path(os.path.realpath(folder / name)).is_relative_to(
        folder.resolve()
    )


def _plain(entries: tuple[ArchiveEntry, ...] | list[ArchiveEntry]) -> list[list[str]]:
    return [[entry.name, entry.kind, entry.digest] for entry in entries]


def _digest(entries: list[ArchiveEntry]) -> str:

    return hashlib.sha256(json.dumps(_plain(entries)).encode()).hexdigest()


class _Hash:
    """A file-like object that computes the digest of an archive."""

    def __init__(self, out: Any = None) -> None:
        self.found, self._out = hashlib.sha256(), out

    def write(self, piece: bytes) -> int:
        self.found.update(piece)
        if self._out:
            self._out.write(piece)
        return len(piece)


def archive_digest(workdir: Workdir) -> str:
    """The SHA-256 of a folder's archive.

    Raises:
        JobError: a file has changed since it was read.
    """
    made = _Hash()
    _write_archive(workdir, made)
    return made.found.hexdigest()


def archive_key(digest: str) -> str:
    """The key of the object in the stack's bucket."""
    return f"{CODE}/{digest}.tar.gz"


def send_folder(workdir: Workdir, bucket: str, region: str) -> Sent:
    """Send a folder, unless the bucket has it.

    Raises:
        JobError: a file has changed since it was read.
        TransportError: AWS cannot be reached, or does not allow it.
    """
    if not bucket:
        raise JobError("the stack has no bucket to send the workdir through. Deploy it with a bucket")
    key = archive_key(workdir.archive)
    try:
        s3 = client("s3", region)
        if _stays(s3, bucket, key):
            return Sent()
        with tempfile.TemporaryFile() as file:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_archive(workdir, _Hash(packed))
            size = file.tell()
            file.seek(0)
            s3.upload_fileobj(file, bucket, key)
        return Sent(len(workdir.entries), size)
    except failures() as e:
        raise TransportError(
            f"cannot send {workdir.folder} to s3://{bucket}/{CODE}: {describe_error(e)}. Nothing was submitted"
        ) from None


def folder_addresses(workdir: Workdir, bucket: str, region: str) -> dict[str, str]:
    """A presigned address of a folder's object, by its digest: secret, and not for a job's files.

    A head node gives its credentials to no job's user, so a submission fetches the folder there by it.

    Raises:
        TransportError: there are no credentials to sign with.
    """
    try:
        address = presigned(presigning(region), "get_object", bucket, archive_key(workdir.archive))
    except failures() as e:
        raise TransportError(f"cannot read s3://{bucket}/{CODE}: {describe_error(e)}") from None
    return {workdir.archive: address}


def content_of(file: Path, link: bool) -> bytes:
    """The content of a file, or the target of a link."""
    try:
        return os.fsencode(file.readlink()) if link else file.read_bytes()
    except OSError as e:
        raise JobError(f"cannot read {file}: {e.strerror}. Name it in .trnignore, or make it readable") from None


def _write_archive(workdir: Workdir, out: _Hash) -> None:
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


def read_commit(folder: Path, sent: Collection[str]) -> Commit | None:
    """The commit of a folder; None if it is in no git repository, or git cannot say.

    Args:
        sent: names of the files that are sent. Nothing is recorded about others, which may be secret.
    """
    head = _git(folder, "rev-parse", "--verify", "HEAD")
    changed = _git(folder, "diff", "--name-only", "--relative", "--no-ext-diff", "-z", "HEAD") if head else None
    if not head or changed is None:
        return None
    names = [name for name in os.fsdecode(changed).split("\0") if name in sent]
    diff: bytes | None = b""
    if names:
        options = ("--relative", "--no-ext-diff", "--no-textconv", "--no-color", "--binary")
        diff = _git(folder, "diff", *options, "HEAD", "--", *names) if len(names) <= _MAX_DIFF_FILES else None
    return Commit(head.decode().strip(), diff if diff is None or len(diff) <= MAX_DIFF_BYTES else None)


def _git(folder: Path, *words: str) -> bytes | None:
    """Run git, and return its output; None if it fails."""
    options = ("--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder))
    try:
        done = subprocess.run(
            ["git", *options, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
