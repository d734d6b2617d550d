"""Virtual environments of jobs' packages, on the shared file system: they add packages to the cluster's or the image's.

One is named after all that decides what it is, made once for all jobs, and never changed. It exists whole or not at all: it is made in its
own folder, which a link then names. (The folder itself cannot be renamed: its programs begin with its path.)

Of a user's requirements file, what the vendor releases together is never replaced, and no secret is shown.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from .. import files, records, slurm
from ..errors import Later, Refused
from ..files import write, write_json
from ..layer import canonical
from . import RECORD, Failed, Here, activate, once, remove, say


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
    layer = (pkgutil.get_data(str(__package__).rpartition(".")[0], "layer.py") or b"").decode()
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


# --- removing those that no job uses any more -------------------------------------------------------------------------------------------

DAYS = 30
"""Days for which a virtual environment stays after its last use."""
_NAME = re.compile(r"[0-9a-f]{12}")


def remove_unused(here: Here) -> None:
    """Remove each virtual environment that no job has used for `DAYS` days and that no waiting job names, and say which.

    A job uses one when it finds or makes it (`mark_used`), and while its log grows. Whether a job waits, Slurm's queue says; where there is none,
    a job waits that has not begun to train. What cannot be removed stays, and fails no job.
    """
    place, before = here.trn / "environments", time.time() - DAYS * 86_400
    old = {name for name in _names(place) if _NAME.fullmatch(name) and _used_at(place / name) < before}
    if not old:
        return
    with contextlib.suppress(Later, Refused):  # Slurm does not answer: another time
        for name in sorted(old - _in_use(here, before)):
            with contextlib.suppress(OSError):
                _remove(here, place / name, before)


def mark_used(place: Path) -> None:
    """Record that a job uses a virtual environment now, if it is there. It does so before it looks for it (`_remove`)."""
    with contextlib.suppress(OSError):
        os.utime(place / RECORD)


def _used_at(place: Path) -> float:
    """Return the time at which a job last used a folder, in seconds since 1970. The record is opened: NFS then asks for the time anew."""
    try:
        with (place / RECORD).open("rb") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def _in_use(here: Here, before: float) -> set[str]:
    """The names of virtual environments that waiting, running or lately ended jobs use."""
    queue = {row.id for row in slurm.rows(others=True)} if shutil.which("squeue") else None
    jobs, used = here.trn / "jobs", set[str]()
    for id in _names(jobs):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            name = files.read(jobs / id / "environment", 100).decode().strip()
            waits = id in queue if queue is not None else not records.is_cancelled(jobs / id) and not _logs(jobs / id)
            if waits or any(one.stat().st_mtime >= before for one in _logs(jobs / id)):
                used.add(name)
    return used


def _logs(job: Path) -> list[Path]:
    """The logs of a job's training, also of the members of an array."""
    return [*job.glob("logs/train*.log"), *job.glob("*/logs/train*.log")]


def _remove(here: Here, link: Path, before: float) -> None:
    """Remove a virtual environment under the lock of those who make it. Its name goes first, so that no job finds half of one; it comes back where a
    job has found it just before."""
    marker = here.trn / "done" / f"environment-{link.name}"
    with marker.with_name(f"{marker.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside = link.with_name(f".{link.name}.unused")
        link.rename(aside)
        if _used_at(aside) >= before:
            aside.rename(link)
            return
        record = files.read_json(aside / RECORD, 20_000)
        size = record.get("megabytes") if isinstance(record, dict) else None
        for part in link.parent.glob(f".{link.name}.*"):
            remove(part)
        say(
            f"removed the packages {link.name} ({size if isinstance(size, int) else '?'} MB), which no job has used for {DAYS} days"
        )


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []


# --- a user's requirements file ---------------------------------------------------------------------------------------------------------

SHORTEST = 4
"""Characters of a value that is hidden: a shorter one is not a secret, and hiding it would hide parts of words."""
MOST = 4_000_000
"""Bytes of pip's words that are kept, to explain them."""


def requirements(
    here: Here,
    base: str,
    index: str,
    lines: Sequence[str],
    label: str,
    constraints: Sequence[str] = (),
    files: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> None:
    """Make the virtual environment of a requirements file, or find it.

    Args:
        base: the image; empty: the cluster's packages.
        lines: of the file. Paths begin in the folder of the code.
        files: what decides of the files that it names.
        label: the file, for the user.
        variables: those that pip replaces in it: their values are not shown.
    """
    kept: dict[str, str] = inside(here, here.python, "describe")["protected"]
    limits = [*constraints, *(f"{name}=={version}" for name, version in kept.items())]
    given = {"requirements": lines, "constraints": limits}
    for name, content in given.items():
        write(here.job / f"{name}.txt", "".join(f"{line}\n" for line in content).encode())
    decides = [hashlib.sha256("\0".join([*lines, "", *limits, "", *files]).encode()).hexdigest()]
    told = [line.partition(" --hash")[0] for line in lines]
    words = ["-r", "requirements.txt", "-c", "constraints.txt"]
    said: list[bytes] = []
    hidden = secrets([here.variables.get(name, "") for name in variables])
    try:
        use(
            here,
            Layer("script", base or str(here.base), index, words, told, decides),
            partial(_compare, here, kept, label),
            partial(_relay, said, hidden),
        )
    except Failed:
        why = explain(kept, b"".join(said).decode(errors="replace"), label) if said else ""
        if why:
            raise Refused(why) from None
        if said:
            raise Failed(f"{label} could not be installed: see what pip says above") from None
        raise


def secrets(values: Sequence[str]) -> list[bytes]:
    """Return the texts to hide for variables with these values: each value, and its URL-decoded form."""
    every = {text for value in values for text in (value, unquote(value)) if len(text) >= SHORTEST}
    return [text.encode() for text in sorted(every, key=len, reverse=True)]


def _relay(
    said: list[bytes], hidden: Sequence[bytes], words: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> int:
    """Run pip, in the folder of the code, whose files it must not import. What it says is passed on, and kept, without what is hidden."""
    size, code = 0, folder / "code"
    files = {name: str(folder / name) for name in ("requirements.txt", "constraints.txt")}
    words = [words[0], "-I", *(files.get(word, word) for word in words[1:])]
    with subprocess.Popen(
        words,
        cwd=code if code.is_dir() else folder,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as pip:
        for line in pip.stdout or ():
            for text in hidden:
                line = line.replace(text, b"****")
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
            size += len(line)
            if size < MOST:
                said.append(line)
    return pip.returncode


def explain(kept: Mapping[str, str], said: str, label: str) -> str:
    """Describe why pip did not install a file: which package wants another version of what is protected; empty if that is not why."""
    for line in said.splitlines():
        wants = re.match(r"\s+(.+) depends on ([A-Za-z0-9._-]+)(.*)", line) or re.match(
            r"\s+(The user) requested ([A-Za-z0-9._-]+)(.*)", line
        )
        if wants and canonical(wants[2]) in kept:
            name, version, user = wants[2], kept[canonical(wants[2])], wants[1] == "The user"
            what = f"{label if user else wants[1]} wants {name}{wants[3]}, and {name} {version} is never replaced: Neuron needs it"
            if user:
                return f"{what}. Write {name} without a version, or remove it"
            return f"{what}. Take a version of {wants[1].split()[0]} that goes with it, or remove it from the file"
    return ""


def _compare(here: Here, kept: Mapping[str, str], label: str, place: Path, _: Mapping[str, str]) -> None:
    """Refuse a virtual environment with a copy of what is protected, which a package may bring by its address."""
    for name, version, by in inside(here, str(place / "bin" / "python3"), "brought", kept):
        who = ", ".join(by) or f"a line of {label}"
        raise Refused(
            f"{who} brings {name} {version}, and {name} {kept[name]} is never replaced: Neuron needs it. Remove it from the file"
        )
