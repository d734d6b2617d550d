"""The folder of a submission (`trn submit --workdir DIR`): what of it is sent, and sending it to the stack's bucket.

Content is sent once. A tree is named after the SHA-256 of its list of files, and lies in the bucket as that list and as packs of file
contents; a later submission sends one more pack, with the contents that no pack has yet. The bucket deletes both in time, so that a submission sends what is old again. The list and all contents are compared with
their SHA-256 when a job fetches them (`shell/code.py`): other jobs may write to the bucket.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import io
import json
import os
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainium_cdk._aws import code_and_message, describe_error, failures
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs.archive import Entry, Kind, Workdir, content_of
from trainium_cdk.jobs.build_context import is_secret, leads_out
from trainium_cdk.jobs.presigned import presigned, presigning
from trainium_cdk.outputs.contract import CODE, CODE_DAYS

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from trainium_cdk.jobs.models import Plan

MAX_BYTES, MAX_FILES = 500_000_000, 20_000
"""Of all files together. Data and checkpoints belong on the shared file system."""
MOST_PACKS = 20
"""A tree of more packs is sent as one again."""
PREFIX = f"{CODE}/"
_SENT_AGAIN = dt.timedelta(days=CODE_DAYS / 2)
_IGNORE = (".gitignore", ".trnignore")
_NOT_SENT = frozenset({"__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


class Sent(NamedTuple):
    """What sending a folder took: nothing if it was there already. `size`: packed."""

    files: int = 0
    size: int = 0


def read(folder: Path) -> Workdir:
    """A folder without what `.gitignore` and `.trnignore` files leave out, nor credentials and caches.

    Raises:
        JobError: it is no folder, cannot be read, is too large, or has a link that leads out of it.
    """
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise JobError(f"workdir is {folder}, which is not a folder. Give the folder of your code")
    entries: list[Entry] = []
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
    return Workdir(folder, tuple(entries), _digest(entries), tuple(left[:10]))


def deliver(plan: Plan) -> Sent | None:
    """Send a job's folder, if it has one, to the bucket of its cluster. Raises as `send` does."""
    workdir = getattr(plan.job, "workdir", None)
    if not workdir:
        return None
    from trainium_cdk.jobs import archive

    if plan.cluster.bucket:
        archive.send(workdir, plan.cluster.bucket, plan.cluster.region)
    return send(workdir, plan.cluster.bucket, plan.cluster.region)


def addresses(plan: Plan) -> dict[str, str]:
    """Presigned addresses of the objects of a job's folder, by their names below `PREFIX`; empty without a folder.

    A head node gives its credentials to root and to the image's user only (ParallelCluster's `Imds.Secured`), so a person's submission fetches
    the folder there by these. See `presigned`.

    Raises:
        TransportError: AWS cannot be reached, or does not allow it.
    """
    workdir, cluster = getattr(plan.job, "workdir", None), plan.cluster
    if not workdir:
        return {}
    try:
        s3 = presigning(cluster.region)
        names = [f"trees/{workdir.digest}.json"]
        tree = _get(s3, cluster.bucket, names[0]) or {}
        names += [f"packs/{pack}.tar.gz" for pack in tree.get("packs", ())]
        made = {name: presigned(s3, "get_object", cluster.bucket, f"{PREFIX}{name}") for name in names}
    except failures() as e:
        raise TransportError(f"cannot read s3://{cluster.bucket}/{PREFIX}: {describe_error(e)}") from None
    from trainium_cdk.jobs import archive

    return {**made, **archive.addresses(workdir, cluster.bucket, cluster.region)}


def send(workdir: Workdir, bucket: str, region: str) -> Sent:
    """Send what the bucket does not have.

    Raises:
        JobError: a file has changed since it was read.
        TransportError: AWS cannot be reached, or does not allow it.
    """
    import boto3

    if not bucket:
        raise JobError("the stack has no bucket to send the workdir through. Deploy it with a bucket")
    try:
        return _send(workdir, boto3.client("s3", region_name=region), bucket)
    except failures() as e:
        raise TransportError(
            f"cannot send {workdir.folder} to s3://{bucket}/{PREFIX}: {describe_error(e)}. Nothing was submitted"
        ) from None


def _send(workdir: Workdir, s3: Any, bucket: str) -> Sent:
    tree = _get(s3, bucket, f"trees/{workdir.digest}.json")
    if tree is not None and all(_exists(s3, bucket, f"packs/{pack}.tar.gz") for pack in tree.get("packs", ())):
        return Sent()  # a pack may be older than the list
    latest = f"latest/{hashlib.sha256(str(workdir.folder).encode()).hexdigest()[:32]}.json"
    known: dict[str, str] = {}  # content -> pack
    for pack, contents in (_get(s3, bucket, latest) or {}).get("packs", {}).items():
        known |= dict.fromkeys(contents, pack)
    wanted = {entry.digest: entry for entry in workdir.entries}
    packs: dict[str, list[str]] = {}
    for digest in wanted.keys() & known.keys():
        packs.setdefault(known[digest], []).append(digest)
    there = {pack for pack in packs if _exists(s3, bucket, f"packs/{pack}.tar.gz")}
    packs = {pack: digests for pack, digests in packs.items() if pack in there} if len(packs) < MOST_PACKS else {}
    have = {digest for digests in packs.values() for digest in digests}
    new = [entry for digest, entry in wanted.items() if digest not in have]
    if new:
        with tempfile.TemporaryFile() as file:
            name = _pack(workdir.folder, new, file)
            size = file.tell()
            file.seek(0)
            s3.upload_fileobj(file, bucket, f"{PREFIX}packs/{name}.tar.gz")
        packs[name] = [entry.digest for entry in new]
    else:
        size = 0
    body = json.dumps({"entries": _plain(workdir.entries), "packs": packs}, sort_keys=True).encode()
    for key in (f"trees/{workdir.digest}.json", latest):
        s3.put_object(Bucket=bucket, Key=f"{PREFIX}{key}", Body=body)
    return Sent(len(new), size)


def _pack(folder: Path, entries: list[Entry], file: Any) -> str:
    """Write the contents as a compressed tar file; returns its SHA-256."""
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as pack:
        for entry in entries:
            content = content_of(folder / entry.name, entry.kind == "link")
            if hashlib.sha256(content).hexdigest() != entry.digest:
                raise JobError(f"{entry.name} changed while the workdir was sent. Submit again")
            member = tarfile.TarInfo(entry.digest)
            member.size = len(content)
            pack.addfile(member, io.BytesIO(content))
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0, os.SEEK_END)
    return digest


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
    """As git decides: the deepest ignore file with a matching line."""
    for place, spec in reversed(rules):
        found = spec.check_file(file.relative_to(place).as_posix() + "/" * is_folder).include
        if found is not None:
            return found
    return False


def _entry(folder: Path, file: Path, name: str, mode: int) -> Entry:
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
    return Entry(name, kind, hashlib.sha256(content).hexdigest(), len(content))


def _plain(entries: tuple[Entry, ...] | list[Entry]) -> list[list[str]]:
    return [[entry.name, entry.kind, entry.digest] for entry in entries]


def _digest(entries: list[Entry]) -> str:
    """As `shell/code.py` computes it."""
    return hashlib.sha256(json.dumps(_plain(entries)).encode()).hexdigest()


def _get(s3: Any, bucket: str, key: str) -> dict[str, Any] | None:
    """A JSON object of the bucket; None if there is none, it is too old, or it is not ours."""
    with _missing():
        there = s3.get_object(Bucket=bucket, Key=f"{PREFIX}{key}")
        with contextlib.suppress(ValueError):
            found = json.loads(there["Body"].read())
            return found if isinstance(found, dict) and _stays(there) else None
    return None


def _exists(s3: Any, bucket: str, key: str) -> bool:
    with _missing():
        return _stays(s3.head_object(Bucket=bucket, Key=f"{PREFIX}{key}"))
    return False


@contextlib.contextmanager
def _missing() -> Iterator[None]:
    """Go on where an object is missing. S3 reports that as a denied request to a caller that may not list the whole bucket, as the role
    of a head node, which may list below a prefix."""
    try:
        yield
    except failures() as e:
        if code_and_message(e)[0] not in ("404", "NoSuchKey", "403", "AccessDenied"):
            raise


def _stays(there: Mapping[str, Any]) -> bool:
    """Whether the bucket keeps an object until a job that is submitted now has fetched it."""
    written: dt.datetime = there["LastModified"]
    return dt.datetime.now(dt.UTC) - written < _SENT_AGAIN
