"""The checkpoints in a job's folder, by what its kind says of them (`spec.Checkpoints`)."""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import Refused
from ..files import read, write
from ..spec import Checkpoints
from . import remove, say

DESCRIPTION = "trn-checkpoints"
"""A file next to checkpoints: what a job that continues from them must have in common with the one that wrote them."""
LAST = {
    "COMPLETE": b"",
    ".metadata": b"",
    "trainer_state.json": b"",
    "_CHECKPOINT_METADATA": rb'"commit_timestamp_nsecs": *[0-9]',
    "index": rb'^\[\["step", [0-9].*\]$',
    "metadata.json": rb'^\{"step": [0-9]+, "timestamp": ".*\}$',
}
"""The file that says that a checkpoint is complete, and a pattern of its content then: of a user's own script, PyTorch's DCP, Hugging Face's Trainer,
Orbax (which writes it first, and the time of its commit last), AXLearn, Levanter."""
TEMPORARY = ".orbax-checkpoint-tmp"
"""In the name of a folder that Orbax has not finished. It renames it then, but with its option COMMIT_FILE."""
_LIGHTNING = b"pytorch-lightning_version"
"""A key of Lightning's checkpoints, at their beginning. One is a file, which Lightning moves into place, of the first process (2.6.6)."""
_SKEW = 2.0
"""Seconds by which the clocks of nodes may differ."""
_END = b"PK\x05\x06"


def newest(rules: Checkpoints, folder: Path) -> Path | None:
    """The newest complete checkpoint in a folder, if any. Where the kind knows of none (no pattern): None.

    >>> newest(Checkpoints("output", pattern="step-*", last=".metadata"), Path("/no/such/folder"))
    """
    for one in _found(rules, folder):
        if _is_complete(rules, one):
            return one
        say(f"{one} was not written to its end: the one before it is used")
    return None


def complete(rules: Checkpoints, folder: Path) -> Iterator[Path]:
    """The complete checkpoints in a folder, the newest first. Where the kind knows of no single one: what itself says that it is whole."""
    if not rules.pattern:
        return iter(_of_script(folder))
    return (one for one in _found(rules, folder) if not one.is_symlink() and _is_complete(rules, one))


def latest(rules: Checkpoints, folder: Path) -> Path | None:
    """The newest complete checkpoint; where nothing says what is complete, the newest entry of the folder."""
    found = next(complete(rules, folder), None)
    if found or rules.pattern or not folder.is_dir():
        return found
    names = (one for one in folder.iterdir() if one.name != DESCRIPTION and TEMPORARY not in one.name)
    entries = (one for one in names if not one.is_symlink())
    return max(entries, key=lambda one: one.lstat().st_mtime, default=None)


def forget(rules: Checkpoints, folder: Path) -> None:
    """Delete what the program, started again, would take for its newest checkpoint, or no longer knows. One node does it for all, before any starts."""
    if rules.forget != "others":
        return
    keep = newest(rules, folder)
    for one in _found(rules, folder):
        if one != keep:
            remove(one)


def describe(same: Mapping[str, str], folder: Path) -> None:
    """Write down what a job that continues from these checkpoints must have in common with this one. One node does it for all."""
    if same:
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / DESCRIPTION, "".join(f"{key} {value}\n" for key, value in same.items()).encode())


def read_description(folder: Path) -> dict[str, str]:
    """Read the description that `describe` wrote; empty if there is none. Others may have written it: the result can be shown."""
    try:
        text = read(folder / DESCRIPTION, 20_000).decode("ascii", "replace")
    except OSError:
        return {}
    pairs = (line.partition(" ") for line in reversed(text.splitlines()))  # of two, the first
    return {key: re.sub(r"[^ -~]", "", value)[:100] for key, _, value in pairs}


def check_same(name: str, place: Path, made: Checkpoints) -> None:
    """Check that this job can continue from the checkpoints of a folder, by their description.

    Raises:
        Refused: it cannot read them; `name` is what the user gave.
    """
    there = read_description(place)
    for key, value in made.same.items() if there else ():
        has = there.get(key, "")
        if has == value:
            continue
        if key == "kind":
            raise Refused(
                f"{name} has checkpoints of {has or 'another kind'}, not of {value}. Submit the same kind, or name others"
            )
        raise Refused(
            f"{name} has checkpoints of a job with {key} {has or 'unknown'}, and this job has {key} {value}, with which they cannot be "
            "read. Submit it with the same"
        )


def _found(rules: Checkpoints, folder: Path) -> list[Path]:
    """All checkpoints, the newest first."""
    if not rules.pattern or not folder.is_dir():
        return []
    every = (one for one in folder.iterdir() if fnmatch.fnmatchcase(one.name, rules.pattern))
    kind = Path.is_file if rules.last == "zip" else Path.is_dir
    return sorted(filter(kind, every), key=lambda one: _numbers(one.name), reverse=True)


def _of_script(folder: Path) -> list[Path]:
    """Those of a user's own script that say themselves that they are whole. A file does so if it is the only one: others may be parts of the same."""
    entries = (
        [one for one in folder.iterdir() if one.name[0] != "." and one.name != DESCRIPTION] if folder.is_dir() else []
    )
    found = {}
    for one in entries:
        with contextlib.suppress(OSError):  # it has just been deleted
            last = next((one / name for name, content in LAST.items() if _has(one / name, content)), None)
            if last and TEMPORARY not in one.name and not one.is_symlink() and not _is_overwritten(one, last):
                found[one] = last.stat().st_mtime
            elif _is_of_lightning(one) and not one.name.startswith("last"):  # by default a copy of another one
                found[one] = one.stat().st_mtime
    if len(entries) == 1 and entries[0].is_file() and not entries[0].is_symlink():
        return entries if _is_whole(entries[0], sure=True) else []
    return sorted(found, key=lambda one: found[one], reverse=True)


def _is_of_lightning(file: Path) -> bool:
    """Return whether a file is a whole checkpoint of Lightning."""
    if file.suffix != ".ckpt" or file.is_symlink() or not file.is_file() or not _is_whole(file, sure=True):
        return False
    with file.open("rb") as content:
        return _LIGHTNING in content.read(4096)


def _has(file: Path, content: bytes) -> bool:
    return file.is_file() and (not content or re.search(content, read(file).strip(), re.DOTALL) is not None)


def _numbers(name: str) -> list[tuple[int, str]]:
    """Return a key that compares names by their numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _is_complete(rules: Checkpoints, one: Path) -> bool:
    if rules.last == "zip":
        return _is_whole(one)
    last = one / rules.last
    return not rules.last or (last.is_file() and last.stat().st_size > 0 and not _is_overwritten(one, last))


def _is_overwritten(one: Path, last: Path) -> bool:
    """Return whether PyTorch's distributed checkpoint was begun again over a complete one. Then a part is newer than the file that it writes last."""
    newest_part = max((part.stat().st_mtime for part in one.glob("*.distcp")), default=0.0)
    if newest_part <= last.stat().st_mtime + _SKEW:
        return False
    say(
        f"{last} is older than its parts. If you copied this checkpoint, its times are the copy's. Then run: touch {last}"
    )
    return True


def _is_whole(file: Path, *, sure: bool = False) -> bool:
    """Return whether a file of PyTorch's is whole. Such files are ZIP archives, whose table of contents comes last. `sure`: not one that is none."""
    size = file.stat().st_size
    with file.open("rb") as content:
        if content.read(2) != b"PK":
            return size > 0 and not sure
        content.seek(max(0, size - 66_000))
        return _END in content.read()
