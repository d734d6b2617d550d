"""The archive that `trn image build` sends: a folder as a zip file, without secrets, and with nothing from outside the folder."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import os
import posixpath
import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_cdk.description.outputs.contract import SOURCES
from trainium_cdk.errors import TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from pathspec import PathSpec

MAX_BYTES = 2_000_000_000
"""Bytes of all files together, before compression."""
NOT_SENT = (".git", ".env", ".env.*", ".aws", ".ssh", ".gnupg", ".kube", ".netrc", ".pypirc")
"""Names that are left out at any depth: history and credentials. A line such as `!.env.example` in .dockerignore includes one."""
IGNORE = ".dockerignore"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class LeftOut:
    """Files that are not sent.

    Attributes:
        what: a path in the folder, or .dockerignore for everything that it excludes.
    """

    what: str
    files: int
    size: int

    def __str__(self) -> str:
        return f"{self.what} ({counted(self.files, 'file')}, {self.size:,} bytes)"


@dataclass(frozen=True)
class PackedFolder:
    """A folder to build, packed.

    Attributes:
        content: a zip file; the same files give the same bytes.
        digest: SHA-256 of it.
        files: number of files in it.
        size: bytes of these files, before compression.
        left_out: what the folder has and the zip file has not.
    """

    content: bytes
    digest: str
    files: int
    dockerfile: str = "Dockerfile"
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()

    @property
    def key(self) -> str:
        return f"{SOURCES}{self.digest}.zip"

    def tag(self) -> str:
        """The default tag of the image, derived from its content and, where it is not `Dockerfile`, from the Dockerfile's name."""
        digest = self.digest
        if self.dockerfile != "Dockerfile":
            digest = hashlib.sha256(f"{digest} {self.dockerfile}".encode()).hexdigest()
        return f"src-{digest[:16]}"


def pack(folder: Path, dockerfile: str = "Dockerfile") -> PackedFolder:
    """Pack a folder as `docker build` sees it: without what its .dockerignore names, and links as links. Files that often hold
    secrets (NOT_SENT) are left out.

    Raises:
        TrnError: the folder or the Dockerfile does not exist, a link leaves the folder, a file cannot be read or sent, or
            the folder is too large.
    """
    if not folder.is_dir():
        raise TrnError(f"{folder} is not a folder. Name the one with the Dockerfile")
    dockerfile = posixpath.normpath(dockerfile)
    if not (folder / dockerfile).is_file():
        raise TrnError(f"there is no {dockerfile} in {folder.resolve()}. Name another folder, or give --file")
    for needed in (dockerfile, IGNORE):
        if not (folder / needed).resolve().is_relative_to(folder.resolve()):
            raise TrnError(f"{needed} is outside {folder}. Put the file itself into the folder")
    rules = _Rules.read(folder / IGNORE)
    sent: list[tuple[Path, str, os.stat_result]] = []
    left: dict[str, list[int]] = {}
    by_top = Counter[str]()
    for file in _files(folder):
        name, info = file.relative_to(folder).as_posix(), file.lstat()
        if name not in (dockerfile, IGNORE) and (why := rules.leave_out(name, info.st_mode)):
            left.setdefault(why, []).append(info.st_size)
        else:
            sent.append((file, name, info))
            by_top[name.partition("/")[0]] += info.st_size
    if (size := by_top.total()) > MAX_BYTES:
        raise TrnError(_too_large(folder, by_top))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
        for file, name, info in sent:
            packed.writestr(_entry(name, info.st_mode), _content(file, folder, name, info.st_mode))
    content = out.getvalue()
    left_out = tuple(LeftOut(what, len(sizes), sum(sizes)) for what, sizes in sorted(left.items()))
    return PackedFolder(content, hashlib.sha256(content).hexdigest(), len(sent), dockerfile, size, left_out)


@dataclass(frozen=True)
class _Rules:
    """Rules for files that are left out: the rules in .dockerignore, and `NOT_SENT` unless .dockerignore includes the name."""

    ignored: PathSpec[Any]
    wanted: PathSpec[Any]

    @classmethod
    def read(cls, file: Path) -> _Rules:
        """Raises TrnError: it is not a valid .dockerignore."""
        from pathspec import PathSpec

        try:
            lines = file.read_bytes().decode("utf-8-sig").splitlines() if file.is_file() else []
        except UnicodeDecodeError as e:
            raise TrnError(f"{file} is not UTF-8 text (its byte {e.start}). Save it as UTF-8") from None
        except OSError as e:
            raise TrnError(f"cannot read {file}: {e.strerror}") from None
        ignored, wanted = [], []
        for number, line in enumerate(lines, 1):
            patterns = _as_gitignore(line)
            try:
                PathSpec.from_lines("gitignore", patterns)
            except ValueError:
                raise TrnError(
                    f"{file}, line {number}: {line.strip()[:80]!r} is not a pattern. Correct it, or remove the line"
                ) from None
            ignored += patterns
            wanted += [p[1:] for p in patterns if p.startswith("!") and is_secret(p[1:])]
        return cls(PathSpec.from_lines("gitignore", ignored), PathSpec.from_lines("gitignore", wanted))

    def leave_out(self, name: str, mode: int) -> str:
        """The name under which a file is reported as left out; empty if it is sent."""
        parts = name.split("/")
        secret = next((i for i, part in enumerate(parts) if is_secret(part)), None)
        if secret is not None and not self.wanted.match_file(name):
            return "/".join(parts[: secret + 1])
        if self.ignored.match_file(name):
            return f"by {IGNORE}"
        return "" if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else f"{name}, which is not a regular file"


def is_secret(path: str) -> bool:
    return any(fnmatch.fnmatchcase(part, name) for part in path.split("/") for name in NOT_SENT)


def _as_gitignore(line: str) -> list[str]:
    """A line of .dockerignore as lines of .gitignore. Its patterns are relative to the folder, and include everything below a match."""
    text = line.strip()
    if not text or text.startswith("#"):
        return []
    sign, text = ("!", text[1:]) if text.startswith("!") else ("", text)
    text = text.removeprefix("./").strip("/")
    return [f"{sign}/{text}", f"{sign}/{text}/**"] if text not in ("", ".") else []


def _files(folder: Path) -> Iterator[Path]:
    """Everything but folders, in the same order on every machine; links are not followed."""

    def failed(e: OSError) -> None:
        raise TrnError(f"cannot read {e.filename}: {e.strerror}. Name it in {folder / IGNORE}, or make it readable")

    for root, folders, names in os.walk(folder, onerror=failed):
        links = [f for f in folders if Path(root, f).is_symlink()]
        folders[:] = sorted(set(folders) - set(links))
        yield from (Path(root, name) for name in sorted([*names, *links]))


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TrnError(f"the file name {os.fsencode(name)!r} is not UTF-8. Rename it, or name it in {IGNORE}") from None
    entry = zipfile.ZipInfo(name, _EPOCH)  # with real times, the same content would not give the same bytes
    entry.create_system = 3  # always Unix: otherwise modes are ignored
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = ((stat.S_IFLNK | 0o777) if stat.S_ISLNK(mode) else 0o755 if mode & 0o111 else 0o644) << 16
    return entry


def _content(file: Path, folder: Path, name: str, mode: int) -> bytes:
    try:
        if not stat.S_ISLNK(mode):
            return file.read_bytes()
        target = str(file.readlink())
    except OSError as e:
        raise TrnError(f"cannot read {file}: {e.strerror}. Name it in {folder / IGNORE}, or make it readable") from None
    if leads_out(folder, name, target):
        raise TrnError(
            f"{name} is a link to {target}, which is outside {folder}. Files outside are not sent: put the file itself into the "
            f"folder, or name the link in {folder / IGNORE}"
        )
    return os.fsencode(target)


def leads_out(folder: Path, name: str, target: str) -> bool:
    """Return whether a link in a folder leads out of it: by its text, if the folder had another name, or on this machine."""
    steps = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return steps.split("/")[0] in ("", "..") or not Path(os.path.realpath(folder / name)).is_relative_to(
        folder.resolve()
    )


def _too_large(folder: Path, by_top: Counter[str]) -> str:
    most = ", ".join(f"{name} ({size:,} bytes)" for name, size in by_top.most_common(3))
    return (
        f"{folder} has more than {MAX_BYTES:,} bytes; most are in {most}. Name what the image does not need in "
        f"{folder / IGNORE}, and put data on the shared file system (trn cp)"
    )
