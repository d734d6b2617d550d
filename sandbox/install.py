"""Installs the environments of the sandbox's parts outside a checkout: `python -m sandbox setup`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox import paths

PARTS = ("aws", "pcluster")
Report = Callable[[str], None]


class SetupFailed(RuntimeError):
    """A part could not be installed; the message has the reason."""


def install(report: Report = print) -> None:
    """Create missing parts, and parts with other pinned versions; takes seconds if nothing is.

    Raises:
        SetupFailed: a package could not be downloaded.
    """
    for part in PARTS:
        environment(part, report)
    command_line(report)


def environment(name: str, report: Report = print) -> Path:
    """Create a part's virtual environment from its pinned packages; returns its folder.

    Raises:
        SetupFailed: a package could not be downloaded.
    """
    folder, pinned = paths.environment(name), paths.requirements(name)
    done, wanted = folder / ".done", _digest(pinned)
    if done.is_file() and done.read_text() == wanted:
        done.touch()  # for make
        return folder
    report(f"setup: environment {name}, in {folder}")
    _run([_program("uv"), "venv", "--quiet", "--clear", "--python", sys.executable, folder])
    _run([_program("uv"), "pip", "sync", "--quiet", "--require-hashes", "--python", folder / "bin/python", pinned])
    done.write_text(wanted)
    return folder


def command_line(report: Report = print) -> None:
    """Install the pinned CDK command line and the packages of the CDK's Node functions.

    Raises:
        SetupFailed: npm could not download them.
    """
    files = [paths.PACKAGE / name for name in ("package.json", "package-lock.json")]
    done, wanted = paths.NODE_MODULES / ".done", _digest(files[1])
    if done.is_file() and done.read_text() == wanted:
        return
    report(f"setup: the CDK command line, in {paths.NODE_MODULES}")
    paths.HOME.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, paths.HOME / file.name)
    _run([_program("npm"), "ci", "--silent", "--no-progress", "--prefix", paths.HOME])
    done.write_text(wanted)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _program(name: str) -> Path:
    beside = paths.BIN / name
    found = beside if beside.exists() else shutil.which(name)
    if found is None:
        raise SetupFailed(f"{name} is not installed: install the sandbox again with pip, which includes it")
    return Path(found)


def _run(command: Sequence[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupFailed(f"{Path(str(command[0])).name} failed: {(done.stderr or done.stdout).strip()[-1500:]}")


if __name__ == "__main__":
    try:
        for part in sys.argv[1:]:
            environment(part)
    except SetupFailed as problem:
        sys.exit(str(problem))
