"""The packages of a Python project, for `--requirements`: the dependencies of a pyproject.toml, and what a uv.lock has locked."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainium_cdk.errors import RequirementError
from trainium_cdk.requirements import Requirements, of_lines
from trainium_cdk.requirements.file import MAX_BYTES as MOST
from trainium_cdk.runner.prepare.layer import PROTECTED, canonical

FILES = ("pyproject.toml", "uv.lock")
MAX_BYTES = 20_000_000
_SECONDS = 60
_OTHER = re.compile(
    r"(win32|win_|macosx|musllinux|aarch64|arm|ppc64|s390x|riscv|i686|ios_|android|emscripten|pyodide|wasm)[^-]*\.whl$"
)
"""Wheels for what no node is."""
_DOT = "write a requirements.txt with a dot (.) in it, which installs the project, and submit with --workdir"
_INDEX = "--index-url https://pypi.org/simple"
"""uv's default. The nodes' own index stays theirs."""


def read(file: Path) -> Requirements:
    """The requirements of a project's file.

    Raises:
        RequirementError: it cannot be read, or names none that pip takes.
    """
    try:
        content = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b"\xff"
        given: Any = tomllib.loads(content.decode())
    except OSError as e:
        raise RequirementError(f"cannot read {str(file)[:200]}: {e.strerror}", "check the path") from None
    except ValueError:
        raise RequirementError(f"{file} is not a TOML file of UTF-8 text", "correct it, or write it again") from None
    if file.name == "uv.lock":
        return _locked(file, given)
    return of_lines(_dependencies(given, str(file)), f"{file} dependencies")


def _dependencies(given: dict[str, Any], file: str) -> list[str]:
    project, tool = _table(given, "project"), _table(given, "tool")
    if "dependencies" in (project.get("dynamic") or ()):
        raise RequirementError(f"{file}: the build decides the dependencies (dynamic)", _DOT)
    found = project.get("dependencies")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        poetry = "poetry" in tool and "project" not in given
        fix = "write it with: poetry export -o requirements.txt" if poetry else "add it, or give a requirements.txt"
        raise RequirementError(f"{file} has no list of dependencies in [project]", fix)
    sources = {canonical(name) for name in _table(_table(tool, "uv"), "sources")}
    if named := next((one for one in found if canonical(_name(one)) in sources), None):
        raise RequirementError(
            f"{file}: [tool.uv.sources] says where {_name(named)} is, and pip does not read that",
            "run uv lock, and give --requirements uv.lock",
        )
    return found


def _locked(file: Path, given: dict[str, Any]) -> Requirements:
    """What uv has locked for the project, without what the cluster's environment has in its own version, and what only that needs."""
    found = given.get("package")
    packages = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    versions = {one.get("name"): one.get("version") for one in packages}
    lines = _export(file)
    if any("--hash" not in line and not line.startswith("--") for line in lines):
        lines = _export(file, "--no-hashes")  # pip takes all hashes or none, and a folder or a repository has none
    elsewhere = {f"--hash={hash}" for one in packages for hash in _elsewhere(one)}
    kept = [" ".join(word for word in line.split() if word not in elsewhere) for line in lines if line != _INDEX]
    if (size := sum(map(len, kept))) > MOST:
        raise RequirementError(
            f"{file} has {size:,} bytes of packages, and {MOST:,} is the maximum",
            "put them into an image (trn image build)",
        )
    left = tuple(f"{name} {versions[name]}" for name in PROTECTED if name in versions)
    return replace(of_lines(kept, str(file)), left_out=left)


def _elsewhere(package: dict[str, Any]) -> Iterator[str]:
    """The hashes of a package's wheels for other systems."""
    for wheel in package.get("wheels") or ():
        if _OTHER.search(str(wheel.get("url", "")).rpartition("/")[2]):
            yield str(wheel.get("hash"))


def _export(file: Path, *options: str) -> list[str]:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        fix = "install uv on this machine, or write a requirements.txt where it is: uv export --no-emit-project -o requirements.txt"
        raise RequirementError(f"uv reads {file}, and is not installed", fix)
    prune = [word for name in PROTECTED for word in ("--prune", name)]
    words = [
        uv,
        "export",
        "--quiet",
        "--frozen",
        "--no-dev",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
        "--emit-index-url",
        *prune,
        *options,
    ]
    try:
        done = subprocess.run(
            words,
            cwd=file.absolute().parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise RequirementError(
            f"uv cannot be started for {file}: {type(e).__name__}", "try uv lock --check there"
        ) from None
    if done.returncode:
        why = " ".join(done.stderr.split())[:300]
        raise RequirementError(f"uv does not take {file} ({why})", "run uv lock in its folder")
    return [" ".join(line.split()) for line in done.stdout.replace("\\\n", " ").splitlines() if line.strip()]


def _table(given: dict[str, Any], key: str) -> dict[str, Any]:
    found = given.get(key)
    return found if isinstance(found, dict) else {}


def _name(requirement: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(requirement).name
    except InvalidRequirement:  # refused with its reason, later
        return requirement
