"""The words of a program, once their places are known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .spec import Only, Place, Word


class UnknownPlace(KeyError):
    """A word names a place that there is not here; its argument is the name."""


def shared_root() -> str:
    """Return the folder before an absolute path of a shared file system, in a sandbox; else empty."""
    return os.environ.get("TRN_SHARED_ROOT", "")


def folder_places(job: Path, trn: Path) -> dict[str, str]:
    """The places that are known of a job before it has nodes.

    Args:
        job: its folder.
        trn: the folder of data, sources and models.
    """
    return {"job": str(job), "files": str(job / "files"), "trn": str(trn), "root": shared_root()}


def resolve(word: Word, places: Mapping[str, str]) -> str:
    """A word as the program gets it.

    Args:
        places: the text of each place, by its name.

    Raises:
        UnknownPlace: there is no such place on this engine, or in this stage.

    >>> resolve(("--cache=", Place("cache"), "/x"), {"cache": "/efs/c"})
    '--cache=/efs/c/x'
    >>> resolve("{job} $job", {})
    '{job} $job'
    """
    if isinstance(word, str):
        return word
    made = []
    for part in word:
        if isinstance(part, Place):
            if part.name not in places:
                raise UnknownPlace(part.name)
            made.append(places[part.name])
        elif isinstance(part, Only):
            made.append(_only(Path(resolve(part.of, places))))
        else:
            made.append(part)
    return "".join(made)


def _only(folder: Path) -> str:
    try:
        inside = list(folder.iterdir())
    except OSError:
        return str(folder)
    return str(inside[0] if len(inside) == 1 and inside[0].is_dir() else folder)
