"""Needs of a job that nobody fetches for it. Without them it is refused before Trainium nodes are paid for."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..errors import Refused
from .making import Failed, Here

_FIND = "import importlib.util as i, sys\nprint(*[m for m in sys.argv[1:] if i.find_spec(m) is None])"


def absent_modules(here: Here, names: Sequence[str]) -> str:
    """The modules that Python does not find here, with spaces between; empty if it finds all.

    Raises:
        Failed: Python did not answer.
    """
    code, output, errors = here.ask([here.python, "-c", _FIND, *names])
    if code:
        raise Failed(f"{here.python} failed: {errors.strip()[-300:]}")
    return output.strip()


def modules(here: Here, names: Sequence[str], fix: str) -> None:
    """Refuse a job where Python does not find a module."""
    if absent := absent_modules(here, names):
        raise Refused(f"the nodes' Python has no {absent}. {fix}")


def tools(here: Here, names: Sequence[str], fix: str) -> None:
    """Refuse a job where there is no such program."""
    for name in names:
        if not shutil.which(name, path=here.variables.get("PATH")):
            raise Refused(f"there is no {name} here. {fix}")


def files(_here: Here, folder: str, pattern: str, count: int, fix: str, says: str = "") -> None:
    """Refuse a job where a folder, with those right below it, has fewer files. `says`: all of the message; then the folder must be there too."""
    place = Path(folder)
    if not place.is_dir():
        if says:
            raise Refused(says)
        return  # not visible from here, or fetched later
    found = [one for below in (place, *(f for f in place.iterdir() if f.is_dir())) for one in below.iterdir()]
    there = sum(fnmatch.fnmatchcase(one.name, pattern) for one in found)
    if there < count:
        raise Refused(says or f"{folder} has {there} files {pattern}, and the job needs {count}. {fix}")
