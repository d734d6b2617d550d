"""The virtual environments that programs run in: the cluster's, the image's own, or one that `prepare` has made on top of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import read_json
from ..spec import Word
from ..words import resolve

RECORD = "trn-environment.json"
"""In a virtual environment of `prepare`: what it is made of, for people. Its time says when a job used it last."""


def find_base(venv: Word, root: str) -> Path | None:
    """The cluster's virtual environment, without links; None for the image's own Python.

    Args:
        venv: of `spec.NodeEnvironment`.
        root: the prefix of a path of a shared file system, in a sandbox.

    Raises:
        UnknownPlace: it names another place.
        RuntimeError: `~USER` of a user that there is not.
    """
    if not venv:
        return None
    path = resolve(venv, {"root": root})
    return (Path(path).expanduser() if path.startswith("~") else Path.home() / path).resolve()


def find_own(folder: Path) -> Path | None:
    """The virtual environment of a job's own packages, which `prepare` has made or found; None if there is none, or it was removed.

    Args:
        folder: the job's, of an array the array's.
    """
    try:
        name = (folder / "environment").read_text()[:60].strip()
    except (OSError, UnicodeDecodeError):
        return None
    place = folder.parent.parent / "environments" / name
    return place if name.isalnum() and (place / "bin" / "python3").exists() else None


def activate(place: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a program finds a virtual environment's Python, programs and packages, as its script `activate` sets them."""
    record: Any = read_json(place / RECORD)
    below = record.get("programs") if isinstance(record, dict) else None
    path = [
        str(place / "bin"),
        *([below] if isinstance(below, str) and below else []),
        variables.get("PATH", os.defpath),
    ]
    made = {**variables, "VIRTUAL_ENV": str(place), "PATH": os.pathsep.join(path)}
    made.pop("PYTHONHOME", None)
    return made
