"""Steps of `prepare` that fetch. What all jobs share goes into the folders `data` (of S3, by the AWS CLI), `src` (repositories, each at one commit) and
`hf_cache` (of Hugging Face); the files of a submission's `--workdir` into the job's `code`.

Nobody trusts an archive: nothing is written outside its folder, through a link, or beyond a size.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import lzma
import os
import posixpath
import shutil
import stat
import subprocess
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tarfile import InvalidHeaderError, ReadError, TruncatedHeaderError  # type: ignore[attr-defined]
from typing import IO, Any

from ..errors import Refused
from . import Failed, Here, NotFetched, check_room, once, remove, say


def file(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch one object into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name / uri.rpartition("/")[2]
    once(
        here,
        f"data-{name}-{target.name}",
        target,
        partial(_fetch_object, here, uri, target, wanted(here, sha256), public),
    )


def prefix(here: Here, name: str, uri: str) -> None:
    """Fetch everything below a prefix; after an interruption, what is not there yet."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_sync, here, uri.rstrip("/") + "/", target))


def wanted(here: Here, sha256: str) -> str:
    """The checksum, unless the nodes accept any content of the public data sets."""
    return "" if here.variables.get("TRN_UNVERIFIED_DATA") else sha256


def verify(uri: str, actual: str, sha256: str) -> None:
    """Compare the checksum of an object, if it is known.

    Raises:
        Refused: it is another one.
    """
    if sha256 and actual != sha256:
        raise Refused(
            f"{uri} has the SHA-256 {actual}, and not {sha256}: it was replaced or damaged. It was deleted. Use another copy"
        )
    if sha256:
        say(f"SHA-256 of {uri} verified")


def size_of(here: Here, uri: str, public: bool) -> int:
    """Bytes of an object.

    Raises:
        Failed: it cannot be read.
    """
    bucket, _, key = uri[len("s3://") :].partition("/")
    code, output, errors = here.ask(
        ["aws", "s3api", "head-object", f"--bucket={bucket}", f"--key={key}", "--output=json", *unsigned(public)]
    )
    try:
        return int(json.loads(output)["ContentLength"])
    except (ValueError, KeyError, TypeError):
        why = errors.strip()[-300:] or f"aws ended with {code}"
        raise Failed(f"cannot read {uri}: {why}. Check that it exists and may be read from here") from None


def unsigned(public: bool) -> list[str]:
    """The option of the AWS CLI for buckets that anybody reads."""
    return ["--no-sign-request"] if public else []


def _fetch_object(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching {uri}: {size} bytes")
    if here.run(["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, str(part)]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    try:
        verify(uri, _digest(part), sha256)
    except Refused:
        part.unlink()
        raise
    part.replace(target)


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return Hashed(content).digest()


def _sync(here: Here, uri: str, target: Path) -> None:
    say(f"fetching {uri}")
    part = target.with_name(f"{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    if here.run(["aws", "s3", "sync", "--only-show-errors", "--delete", uri, f"{part}/"]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. What arrived is kept: submit the job again")
    if not any(part.iterdir()):
        raise Refused(f"there is nothing at {uri}. Check the bucket and the prefix")
    remove(target)
    part.rename(target)


# --- archives of S3: unpacked while they arrive, so that they are nowhere whole ---------------------------------------------------------


def archive(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch a tar archive, and unpack it into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_fetch_archive, here, uri, target, wanted(here, sha256), public))


def _fetch_archive(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching and unpacking {uri}: {size} bytes")
    words = ["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, "-"]
    try:
        with subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as aws:
            stream = Hashed(aws.stdout)  # type: ignore[arg-type]
            try:
                entries, bytes_ = unpack(stream, part, size)
            except Refused as e:
                raise Refused(f"{uri} is refused: {e}") from None
            except (Damaged, OSError) as e:
                raise _failed(uri, aws, e) from None
            found = stream.digest()
            if aws.wait():
                raise _failed(uri, aws, None)
        verify(uri, found, sha256)
    except BaseException:
        remove(part)
        raise
    say(f"{entries:,} entries, {bytes_:,} bytes unpacked, {size:,} bytes packed")
    remove(target)
    part.rename(target)


def _failed(uri: str, aws: subprocess.Popen[bytes], error: Exception | None) -> Failed:
    """Return the error of an archive that did not arrive, or is damaged."""
    try:
        code = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
    except subprocess.TimeoutExpired:
        aws.kill()
        code = 0
    if isinstance(error, OSError):
        return Failed(f"{uri} could not be unpacked: {error}")
    if code:
        return Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    return Failed(f"{uri} could not be unpacked: the archive is damaged: {error}")


# --- the files of a submission's `--workdir`: one object of the bucket, named by the SHA-256 of its archive ------------------------------

# Other jobs may write there. A head node gives no job its identity, so a submission fetches a small folder there by a presigned address.
# Where that is not possible, a node with an identity does, in `prepare`.

AT_ONCE = 50_000_000
"""Bytes of a folder that a head node fetches while a job is submitted."""
SECONDS = 60.0
MOST_FILES = 20_000
"""Most files of a folder (`jobs.workdir.MAX_FILES`)."""


def code(here: Here, uri: str, digest: str, size: int) -> None:
    """Put the folder's files into the job's `code`: all, or none.

    Args:
        size: bytes of all files.
    """
    target = here.job / "code"
    if target.is_dir():
        return
    if here.check and (size > AT_ONCE or digest not in here.addresses):
        raise NotFetched("code")
    part = here.job / "code.part"
    remove(part)
    check_room("the workdir", size, here.job)
    try:
        with _by_address(here.addresses[digest]) if here.check else _by_node(here, uri) as packed:
            found = Hashed(gzip.GzipFile(fileobj=packed))  # type: ignore[arg-type]
            count, _ = unpack(found, part, size, size, MOST_FILES)
            if found.digest() != digest:
                raise Refused("the workdir has another content than was sent. Submit the job again")
        part.rename(target)
    except (Damaged, EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise Refused(f"the workdir has another content than was sent: {e}") from None
    finally:
        remove(part)
    say(f"{count} files of the workdir are in {target}")


@contextmanager
def _by_node(here: Here, uri: str) -> Iterator[IO[bytes]]:
    """The object, with the node's identity."""
    words = ["aws", "s3", "cp", "--only-show-errors", uri, "-"]
    try:
        aws = subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused(f"the workdir cannot be fetched: {here.without('aws')}") from None
    with aws:
        try:
            yield aws.stdout  # type: ignore[misc]
        except (Damaged, EOFError, Refused):
            try:
                failed = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
            except subprocess.TimeoutExpired:
                aws.kill()
                failed = 0
            if not failed:
                raise
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again") from None
        if aws.wait():
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again")


@contextmanager
def _by_address(address: str) -> Iterator[IO[bytes]]:
    """The object, by the client's presigned address."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as found:  # noqa: S310  signed by our client
            yield found
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as e:  # none has the address
        say(f"the workdir is fetched on another node: {e}")
        raise NotFetched("code") from None


# --- unpacking an untrusted tar archive --------------------------------------------------------------------------------------------------

CHUNK = 1 << 20
TIMES, SMALL = 100, 1 << 30
"""An archive may grow that many times when it is unpacked, and to that size in any case."""


class Damaged(Exception):
    """The file is not an archive, or not whole."""


class Hashed:
    """A stream that is read, and the SHA-256 of what was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._found = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._found.update(piece)
        return piece

    def digest(self) -> str:
        """Read the rest, and return the digest of all of it."""
        while self.read(CHUNK):
            pass
        return self._found.hexdigest()


class Member(tarfile.TarInfo):
    """Raises ReadError for a damaged header, which tarfile would take for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Member:
        try:
            return super().fromtarfile(tarfile)
        except (InvalidHeaderError, TruncatedHeaderError) as e:
            raise ReadError(f"after {tarfile.offset} bytes: {e}") from None


def unpack(
    stream: Any, folder: Path, compressed: int, most: int | None = None, entries: int | None = None
) -> tuple[int, int]:
    """Unpack a stream into a folder that does not exist yet. Returns the numbers of entries and of bytes.

    Args:
        stream: has `read`; the archive may be compressed.
        compressed: its bytes.
        most, entries: bytes and entries that it can have, where that is known.

    Raises:
        Refused: it has what no archive of data has, or would need too much space.
        Damaged: see there.
        OSError: a file could not be written.
    """
    folder.mkdir()
    try:
        return _unpack(stream, str(folder), compressed, most, entries)
    except getattr(tarfile, "FilterError", Refused) as e:
        raise Refused(str(e)) from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as e:
        raise Damaged(str(e)) from None


def _unpack(stream: Any, folder: str, compressed: int, most: int | None, entries: int | None) -> tuple[int, int]:
    free = shutil.disk_usage(folder).free
    limit = min(free * 95 // 100, max(SMALL, TIMES * compressed))
    count = size = 0
    real = {""}
    with tarfile.open(fileobj=stream, mode="r|*", bufsize=CHUNK, tarinfo=Member) as tar:
        for member in tar:
            name = posixpath.normpath(member.name)
            if name == ".":
                continue
            size += member.size
            count += 1
            if (most is not None and size > most) or (entries is not None and count > entries):
                raise Damaged(f"it has more than was sent: {count:,} entries, {size:,} bytes")
            if size > limit:
                raise Refused(
                    f"it is more than {limit:,} bytes unpacked, and {compressed:,} bytes packed; {free:,} bytes are free. Free "
                    "space, or unpack an archive that you trust yourself"
                )
            _place(tar, member, name, folder, real)
    return count, size


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: str, real: set[str]) -> None:
    """Write one member of an archive. Nothing is ever written through a link; `real` are folders that are known not to be links."""
    if name.startswith("/") or name.split("/")[0] == "..":
        raise Refused(f"{member.name!r} is outside the folder")
    _make_folder(folder, posixpath.dirname(name), real)
    path = os.path.join(folder, name)
    if member.isdir():
        _make_folder(folder, name, real)
        return
    if not (member.isreg() or member.issym() or member.islnk()):
        raise Refused(f"{name!r} is a device or a pipe")
    if os.path.isdir(path) and not os.path.islink(path):
        raise Refused(f"{name!r} is a folder and a file")
    first = posixpath.normpath(member.linkname) if member.islnk() else ""
    target = _inside(name, member.linkname) if member.issym() else ""
    if member.islnk() and (first.startswith(("/", "../")) or not _regular(folder, first, real)):
        raise Refused(f"{name!r} is a link to {member.linkname!r}, which is not a file of the archive")
    member.name = name
    if hasattr(tarfile, "data_filter"):  # Python's own rules in addition, if it has them
        member = tarfile.data_filter(member, folder)
    if first == name:
        return
    if os.path.lexists(path):
        os.unlink(path)
    if target:
        os.symlink(target, path)
    elif first:
        os.link(os.path.join(folder, first), path, follow_symlinks=False)
    else:
        _write(tar, member, path)


def _make_folder(folder: str, name: str, real: set[str]) -> None:
    parts = name.split("/") if name else []
    for i in range(1, len(parts) + 1):
        at = "/".join(parts[:i])
        if at in real:
            continue
        try:
            os.mkdir(os.path.join(folder, at))
        except FileExistsError:
            raise Refused(f"{at!r} is a folder and a file or a link") from None
        real.add(at)


def _inside(name: str, target: str) -> str:
    """The target of a symbolic link. It may go up to the archive's top and then down, but not up again: a folder on its way
    down may be a link."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = next((i for i, step in enumerate(steps) if step != ".."), len(steps))
    if target.startswith("/") or up > name.count("/") or ".." in steps[up:]:
        raise Refused(f"{name!r} is a link to {target!r}, which is outside the folder")
    return target


def _regular(folder: str, name: str, real: set[str]) -> bool:
    if posixpath.dirname(name) not in real:
        return False
    try:
        return stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)
    except FileNotFoundError:
        return False


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    mode = 0o755 if (member.mode or 0) & 0o100 else 0o644
    content = tar.extractfile(member)
    if content is None:
        raise ReadError(f"{member.name!r} has no content")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    if os.path.getsize(path) != member.size:
        raise ReadError(f"{member.name!r} is cut short")
    os.utime(path, (member.mtime, member.mtime))


# --- models and data sets of Hugging Face, by its own libraries -------------------------------------------------------------------------

_MODEL = """import sys, huggingface_hub as hub
commit, model, *files = sys.argv[1:]
hub.snapshot_download(model, revision=commit, allow_patterns=files)"""
_DATASET = """import sys, datasets
datasets.load_dataset(*sys.argv[1:], split="train")"""


def model(here: Here, model: str, patterns: Sequence[str]) -> None:
    """Fetch a model's files of these patterns."""
    name = model.replace("/", "--")
    place = here.trn / "hf_cache" / "hub" / f"models--{name}"
    once(here, f"hf-{name}-{_short(model, *patterns)}", place, partial(_fetch_model, here, model, place, patterns))


def dataset(here: Here, words: Sequence[str]) -> None:
    """Read the part `train` of a data set: its name or a directory, and a configuration."""
    name = "-".join(words).replace("/", "-").replace(" ", "_")[-100:]
    place = here.trn / "hf_cache" / "datasets"
    once(here, f"hf-data-{name}-{_short(*words)}", place, partial(_read_dataset, here, words))


def _fetch_model(here: Here, model: str, place: Path, patterns: Sequence[str]) -> None:
    # files that come later are of the same commit as those that are there: each commit has its own folder
    newest = place / "refs" / "main"
    commit = (newest.read_text().strip() if newest.exists() else "") or "main"
    say(f"fetching {model} from Hugging Face: {' '.join(patterns)}")
    _by_library(here, f"{model} could not be fetched", _MODEL, commit, model, *patterns)


def _read_dataset(here: Here, words: Sequence[str]) -> None:
    say(f"reading the data set {' '.join(words)}")
    _by_library(here, f"the data set {' '.join(words)} could not be read", _DATASET, *words)


def _by_library(here: Here, failed: str, program: str, *words: str) -> None:
    variables = {**here.variables, "HF_HOME": str(here.trn / "hf_cache")}
    command = [here.python, "-c", program, *words]
    done = subprocess.run(
        command, env=variables, cwd=here.job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise Failed(f"{failed}: see what its library says above")


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


# --- git repositories -------------------------------------------------------------------------------------------------------------------


def source(here: Here, name: str, url: str, commit: str, variable: str = "", unless: Sequence[str] = ()) -> None:
    """Fetch a repository at a commit.

    Args:
        variable: names what is fetched in the commit's place: in a sandbox, whose repositories have other commits.
        unless: not needed where Python finds all of these modules.
    """
    if unless and not here.absent_modules(unless):
        return
    place = here.trn / "src" / f"{name}-{commit}"
    ref = here.variables.get(variable) or commit
    once(here, f"src-{name}-{commit}".replace("/", "-"), place, partial(_clone, here, url, ref, place))


def _clone(here: Here, url: str, ref: str, place: Path) -> None:
    say(f"fetching {url} at {ref}")
    part = place.with_name(f"{place.name}.part")
    remove(place)
    remove(part)
    git = ["git", "-C", str(part)]
    for words in (
        ["git", "init", "-q", str(part)],
        [*git, "fetch", "-q", "--depth", "1", "--", url, ref],
        [*git, "checkout", "-q", "--detach", "FETCH_HEAD"],
    ):
        if here.run(words):
            raise Failed(f"{url} could not be fetched at {ref}: see what git says above. Submit the job again")
    part.rename(place)
