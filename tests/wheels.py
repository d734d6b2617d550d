"""Building our wheels, and installing them into a fresh environment as a user would."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterable
from email import message_from_string
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import completed

ROOT = Path(__file__).parents[1]


def run(*argv: str | Path, cwd: Path, **env: str) -> str:
    """Standard output of a command that has to succeed, in an environment without this Python's settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = completed(argv, cwd=cwd, env=clean | env)
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def build(project: Path, out: Path) -> Path:
    """The wheel of the project in that folder, below `out`."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, project, cwd=project)
    return next(out.glob("*.whl"))


def required_by(wheel: Path, *extras: str) -> set[str]:
    """What the wheel and its extras require, and what that requires in turn, in the versions that are installed here."""
    with zipfile.ZipFile(wheel) as z:
        metadata = z.read(next(n for n in z.namelist() if n.endswith("dist-info/METADATA"))).decode()
    lines = message_from_string(metadata).get_all("Requires-Dist") or []
    return {f"{name}=={version(name)}" for name, _ in closure(lines, *extras)}


def closure(lines: Iterable[str], *extras: str) -> set[tuple[str, frozenset[str]]]:
    """What requirements require in turn, as (name, extras), from the versions that are installed here."""
    wanted = [(line, {"", *extras}) for line in lines]
    found: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        line, of_line = wanted.pop()
        requirement = Requirement(line)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in of_line):
            continue
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in found:
            found.add(key)
            wanted += [(line, {"", *requirement.extras}) for line in requires(requirement.name) or []]
    return found


def fresh_environment(
    folder: Path, *wheels: Path, extra: tuple[str, ...] = (), extras: tuple[str, ...] = ("cdk", "jobs")
) -> Path:
    """The Python of a new environment with these wheels, what they and their `extras` require, and `extra` packages.

    `make setup` has filled uv's cache with the files, though not with what each of them requires: nothing is fetched here.
    """
    uv, python = Path(sys.executable).parent / "uv", folder / "fresh/bin/python"
    run(uv, "venv", "--quiet", "--python", sys.executable, folder / "fresh", cwd=folder)
    ours = tuple(f"{wheel.name.partition('-')[0].replace('_', '-')}==" for wheel in wheels)
    needed = {line for wheel in wheels for line in required_by(wheel, *extras) if not line.startswith(ours)}
    install = (uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python)
    run(*install, *wheels, *sorted(needed), *extra, cwd=folder)
    run(uv, "pip", "check", "--python", python, cwd=folder)
    return python
