"""Paths of the sandbox's programs and files.

In a checkout of the project they are in it, and `make setup` creates them. Where the sandbox is installed (`pip install ./sandbox`),
they are in the folder `TRN_SANDBOX_HOME`, by default `~/.cache/trainium-sandbox`, and `python -m sandbox setup` creates them.
The programs of Kubernetes are always in that folder: all checkouts of a machine share them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = PACKAGE.parent if (PACKAGE / "pyproject.toml").is_file() else None
"""The project's checkout; None where the sandbox is installed: a wheel has no pyproject.toml."""


def _shared() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TRN_SANDBOX_HOME") or Path(cache) / "trainium-sandbox").resolve()


_SHARED = _shared()
HOME = _CHECKOUT or _SHARED
"""Contains `.venvs`, `.cache` and `node_modules`."""
CACHE = HOME / ".cache"
COMPILED = _SHARED / "kubernetes"
"""The compiled programs of Kubernetes, outside each checkout."""
BIN = Path(sys.executable).parent
"""Commands of this Python: node, trn, aws."""
NODE_MODULES = HOME / "node_modules"
SETUP = "make setup" if _CHECKOUT else "python -m sandbox setup"
"""The command that installs missing parts."""
SLURM = "make slurm" if _CHECKOUT else "python -m sandbox.slurm_packages"
"""The command that downloads Slurm."""
KUBERNETES = "make kubernetes" if _CHECKOUT else "python -m sandbox.kubernetes build"
"""The command that builds Kubernetes."""


def environment(name: str) -> Path:
    """The virtual environment of a part with its own pinned packages: aws, pcluster, go."""
    return HOME / ".venvs" / name


def requirements(name: str) -> Path:
    """The pinned packages of `environment(name)`; the packages of a tool of the checkout are in its folder `requirements`."""
    ours = PACKAGE / f"requirements-{name}.txt"
    return ours if ours.exists() or not _CHECKOUT else _CHECKOUT / "requirements" / f"{name}.txt"


def cdk() -> Path:
    """The CDK command line: in a checkout the pinned one, else the one on the PATH, else the pinned one, which may not exist."""
    on_path = None if _CHECKOUT else shutil.which("cdk")
    return Path(on_path or NODE_MODULES / ".bin/cdk")


def source() -> Path:
    """A folder with only the package `sandbox`, for the path of Pythons with other packages."""
    if _CHECKOUT is not None:
        return _CHECKOUT
    folder = HOME / "source"
    link = folder / "sandbox"
    if not link.is_symlink() or link.readlink() != PACKAGE:
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f".new-{os.getpid()}"
        new.unlink(missing_ok=True)
        new.symlink_to(PACKAGE)
        new.replace(link)
    return folder


def python_path() -> str:
    """PYTHONPATH of our Python processes: the sandbox, and the library if it is not installed."""
    spec = importlib.util.find_spec("trainium_cdk")
    folders = [source()]
    if _CHECKOUT is not None and spec is not None and spec.origin:
        folders.append(Path(spec.origin).parents[1])
    return os.pathsep.join(map(str, folders))


def seen_by_pods() -> set[Path]:
    """Folders that a pod's processes read, even if the pod mounts something over them (a checkout in /tmp)."""
    every = {HOME, PACKAGE.parent, Path(sys.prefix).resolve()}
    return {folder for folder in every if not any(folder != other and folder.is_relative_to(other) for other in every)}
