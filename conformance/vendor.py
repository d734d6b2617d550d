"""Nodes that run the vendors' programs, of a local Slurm or Kubernetes: packages from PyPI, scripts from the vendors' repositories.

`.venvs/vendor` has the packages (about 7 GB: PyTorch on PyPI is built for CUDA); `make conformance` creates it where the
sources that need it are available. Two small fakes are added: a module `libneuronxla` with the one function that the script
calls, and a `neuron_parallel_compile` that does the trial run and compiles nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from conformance.upstream import NotAvailable, Tree, find
from sandbox import head_node
from trainium_cdk.description.catalog.sources import sources

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venvs/vendor"
PYTHON = ENVIRONMENT / "bin/python"
NO_NETWORK = "http://127.0.0.1:9"
"""A proxy that refuses connections, so that requests to other machines fail at once."""

_LIBNEURONXLA = '''"""A fake of the package with this name, which is not on PyPI: the function that the script calls."""


def register_hlo_snapshot_callback(callback):
    assert callable(callback)
'''
PARALLEL_COMPILE = """#!/bin/sh
# The trial run of neuron_parallel_compile; nothing is compiled.
NEURON_EXTRACT_GRAPHS_ONLY=1 exec "$@"
"""


def need(name: str = "vendor") -> None:
    """Raises NotAvailable where the environment of that name was not created."""
    if not (ROOT / ".venvs" / name / ".done").exists():
        raise NotAvailable(
            f"no environment .venvs/{name}: `make conformance` creates it where the samples are available"
        )


def run(script: Path, *arguments: str) -> None:
    """Run a script of this folder in the vendors' environment.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    env = {**os.environ, **offline()}
    done = subprocess.run([PYTHON, script, *arguments], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script.name} ended with exit code {done.returncode}: {done.stderr[-2000:]}")


def offline() -> dict[str, str]:
    """Environment variables that keep requests on this machine."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NO_NETWORK)
    return {**proxies, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}


def variables(gitconfig: Path, hub: str) -> dict[str, str]:
    """Additional variables of the shell of a head node or a pod.

    Args:
        gitconfig: what `repositories` has written.
        hub: URL of the Hugging Face hub.
    """
    return {
        **offline(),
        "PJRT_DEVICE": "CPU",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",  # compiles in seconds
        "HF_ENDPOINT": hub,
        "GIT_CONFIG_GLOBAL": str(gitconfig),
        "PIP_FIND_LINKS": "",  # all requirements must already be installed
    }


def repositories(folder: Path, sources: Mapping[str, tuple[Tree, str]], *, seen: Path | None = None) -> None:
    """Git repositories of the vendors' sources in a folder, and a `gitconfig` that redirects their URLs to them. Their commit is on the
    branch that the sandbox's jobs fetch.

    Args:
        sources: URL that jobs fetch from -> the tree, and the folder that they use.
        seen: the folder's path where jobs run. Default: the same.
    """
    lines = ["[safe]", "\tdirectory = *"]
    for number, (address, (tree, path)) in enumerate(sources.items()):
        name = f"repository-{number}"
        tree.copy(path, folder / name)
        head_node.make_repository(folder / name)
        lines += [f'[url "file://{seen or folder}/{name}"]', f"\tinsteadOf = {address}"]
    (folder / "gitconfig").write_text("\n".join([*lines, ""]))


def packages() -> list[Path]:
    """The folders with the vendors' packages, and with pip."""
    found = head_node.pip()
    return [_packages(ENVIRONMENT), *([found] if found else [])]


def modules(folder: Path) -> None:
    """The fake of a module, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libneuronxla.py").write_text(_LIBNEURONXLA)


def install(home: Path) -> None:
    """Replace the fakes in the head node's virtual environment with the vendors' packages."""
    where = home / head_node.VENV
    venv.EnvBuilder(symlinks=True, with_pip=False, clear=True).create(where)
    modules(_packages(where))
    (_packages(where) / "vendor.pth").write_text("".join(f"{path}\n" for path in packages()))
    compiler = where / "bin/neuron_parallel_compile"
    compiler.write_text(PARALLEL_COMPILE)
    compiler.chmod(0o755)


def _packages(base: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(base), "platbase": str(base)}))


def main() -> int:
    """Print the environments that are usable here, for the Makefile: none without the script that needs the largest."""
    tree = sources().repositories["samples"]
    try:
        find("aws-neuron/aws-neuron-samples", tree.commit)
    except NotAvailable as e:
        print(e, file=sys.stderr)
    else:
        print("vendor torchtitan nemo")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
