"""The folder of a submission (`trn submit --workdir DIR`): what of it is sent. (Sending it: `archive.py`.)"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trainium_cdk.client.jobs import commits
from trainium_cdk.client.jobs.archive import ArchiveEntry, Kind, Workdir, content_of
from trainium_cdk.client.jobs.build_context import is_secret, leads_out
from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MAX_BYTES, MAX_FILES = 500_000_000, 20_000
"""Most bytes of all files together. Data and checkpoints belong on the shared file system."""
_IGNORE = (".gitignore", ".trnignore")
_NOT_SENT = frozenset({"__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


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
    commit = commits.read(folder, {entry.name for entry in entries})
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


def _plain(entries: tuple[ArchiveEntry, ...] | list[ArchiveEntry]) -> list[list[str]]:
    return [[entry.name, entry.kind, entry.digest] for entry in entries]


def _digest(entries: list[ArchiveEntry]) -> str:

    return hashlib.sha256(json.dumps(_plain(entries)).encode()).hexdigest()
