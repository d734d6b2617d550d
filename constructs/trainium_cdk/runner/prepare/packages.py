"""Virtual environments of jobs' packages, on the shared file system: they add packages to the cluster's or the image's.

One is named after all that decides what it is, made once for all jobs, and never changed. It exists whole or not at all: it is made in its
own folder, which a link then names. (The folder itself cannot be renamed: its programs begin with its path.)
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import pkgutil
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import Refused
from ..files import write, write_json
from .making import RECORD, Failed, Here, activate, once, remove, say
from .unused import mark_used


class Layer(NamedTuple):
    """The contents of a virtual environment.

    Attributes:
        kind: of the job that it is made for.
        base: what it is made on, for people.
        pip_index: of the Neuron packages.
        words: pip's.
        told: what pip gets, for people; empty: the words.
        decides: what else decides what it is.
    """

    kind: str
    base: str
    pip_index: str
    words: Sequence[str]
    told: Sequence[str] = ()
    decides: Sequence[str] = ()


Run = Callable[[Sequence[str], Path, "dict[str, str]"], int]
"""Runs a program in a folder, with variables; returns its exit code."""


def packages(
    here: Here,
    kind: str,
    base: str,
    index: str,
    words: Sequence[str],
    program: str = "",
    arguments: Sequence[str] = (),
) -> None:
    """Make the virtual environment of a kind's packages, or find it.

    Args:
        base: the image; empty: the cluster's packages.
        program: a file that the kind sent, which completes the virtual environment: run in it, after pip, with these arguments.
    """
    content = (here.job / "files" / program).read_text() if program else ""
    layer = Layer(kind, base or str(here.base), index, words, decides=(content, *arguments) if program else ())
    use(here, layer, partial(_complete, here, program, arguments) if program else None)


def inside(here: Here, python: str, function: str, *given: Any) -> Any:
    """The answer of a function of `layer`, in that Python.

    Raises:
        Refused: there is no such Python.
        Failed: it failed.
    """
    # its text: no other process may find the file of this one
    layer = (pkgutil.get_data(str(__package__), "layer.py") or b"").decode()
    try:
        code, output, errors = here.ask([python, "-c", layer, function, json.dumps(given)])
    except Refused:
        raise Refused(f"there is no {python}: the head node's bootstrap has not finished, or failed") from None
    with contextlib.suppress(ValueError):
        return json.loads(output.splitlines()[-1] if output else "")
    raise Failed(f"{python} ended with {code}: {errors.strip()[-500:]}")


def use(
    here: Here, layer: Layer, complete: Callable[[Path, dict[str, str]], None] | None = None, run: Run | None = None
) -> None:
    """Make a virtual environment, or find it; then the job and the steps that follow use it.

    Args:
        complete: what is done in it after pip.
        run: runs pip; None: its output goes to the stage's.
    """
    known = inside(here, here.python, "describe")
    parts = [layer.base, *known["identity"], "", *layer.words, *layer.decides]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    place = here.trn / "environments" / name
    mark_used(place)
    once(
        here,
        f"environment-{name}",
        place,
        partial(_make, here, layer, place, known["python"], complete, run or _run(here)),
    )
    here.python = str(place / "bin" / "python3")
    write(here.job / "environment", f"{name}\n".encode())


def _make(here: Here, layer: Layer, link: Path, version: str, complete: Any, run: Run) -> None:
    if link.exists():
        return
    began, name = time.monotonic(), link.name
    for left in link.parent.glob(f".{name}.*"):
        remove(left)
    place = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=link.parent))
    place.chmod(0o755)
    told = layer.told or layer.words
    say(f"installing packages as {name}, for {layer.kind}, on {layer.base}: {' '.join(told)}")
    if here.run([here.python, "-m", "venv", "--without-pip", str(place)]):
        raise Failed(f"{here.python} could not make a virtual environment: see above")
    programs = str(Path(here.python).parent) if "/" in here.python else _programs(here)
    inside(here, here.python, "lay", str(place), layer.pip_index)
    described = {
        "name": name,
        "kind": layer.kind,
        "base": layer.base,
        "python": version,
        "programs": programs,
        "requirements": list(told),
        "megabytes": 0,
        "seconds": 0,
        "made": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    }
    write_json(place / RECORD, described)
    variables = _variables(here, place)
    if run([str(place / "bin" / "python3"), "-m", "pip", "install", *layer.words], here.job, variables):
        raise Failed(f"the packages of {layer.kind} could not be installed: see what pip says above")
    if complete:
        complete(place, variables)
    seconds, megabytes = int(time.monotonic() - began), _size(place) // 1_000_000
    write_json(place / RECORD, {**described, "megabytes": megabytes, "seconds": seconds})
    part = link.with_name(f".{name}.link")
    part.symlink_to(place.name)
    part.replace(link)
    say(f"packages {name} are ready: {megabytes} MB in {seconds} s")


def _variables(here: Here, place: Path) -> dict[str, str]:
    made = activate(place, here.variables)
    made.setdefault("PIP_CACHE_DIR", str(here.trn / "pip_cache"))  # kept, so that a second attempt is short
    fixed = {"PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**made, **fixed, "PIP_CONSTRAINT": str(place / "constraints.txt")}


def _complete(here: Here, program: str, arguments: Sequence[str], place: Path, variables: dict[str, str]) -> None:
    words = [str(place / "bin" / "python3"), str(here.job / "files" / program), *arguments]
    if _run(here)(words, place, variables):
        raise Failed(f"{program} failed: see above")


def _run(here: Here) -> Run:
    return lambda words, folder, variables: here.run(words, folder=folder, variables=variables)


def _programs(here: Here) -> str:
    """The folder of the image's Python."""
    return str(Path(shutil.which(here.python, path=here.variables.get("PATH")) or "/usr/bin/python3").parent)


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir() or file.is_symlink())
