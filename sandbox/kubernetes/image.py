"""The training image of pods here: images are not pulled, so its programs are added to this machine's files.

Pass `environment()` to `LocalKubernetes.start(job_environment=...)`; `make(cluster.directory)` then creates the files. Pods
see them at `/image`. Training uses the same fakes as the virtual Slurm nodes (see `sandbox/training`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox import head_node
from sandbox.training.fakes import neuron_tools
from trainium_cdk.description.catalog import Catalog

_PLACE = Path("/image")
_STATE = Path("/state")
"""What the programs of all containers know of each other."""
_PYTHON = """#!/bin/sh
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{place}/training:{place}/training/modules"
if [ "${{1:-}} ${{2:-}}" != '-m venv' ]; then exec {python} "$@"; fi # it may be a container's first process
{python} "$@" || exit
# adds pip and torch to new virtual environments; in the real image they are system packages
for last; do :; done
for packages in "$last"/lib/python*/site-packages; do
  printf '%s\\n' {pip} {place}/training {place}/training/modules > "$packages/sandbox.pth"
done
"""
_TOOL = """#!/bin/sh
# Variables that the fakes read from Slurm's environment
export SLURM_JOB_ID="${{TRN_SANDBOX_POD%-train-*}}" SLURM_STEP_ID="${{NEURON_EXTRACT_GRAPHS_ONLY:-0}}"
export SLURM_RESTART_COUNT="${{TRN_ATTEMPT:-0}}" SLURMD_NODENAME="${{TRN_NODE:-node}}" SLURM_NODEID="${{JOB_COMPLETION_INDEX:-0}}"
PYTHONPATH={place}/training exec python3 -m fakes.{module} "$@"
"""


def environment(aws: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables of commands in pods.

    Args:
        aws: variables of the local AWS, for jobs that download data (`LocalAws.variables`).
    """
    path = [str(_PLACE / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {
        **(aws or {}),
        "PATH": os.pathsep.join(path),
        "TRN_NXDT_REF": head_node.REF,
        "TRN_SAMPLES_REF": head_node.REF,
        "TRN_UNVERIFIED_DATA": "1",  # the data sets are generated
        "TRN_SANDBOX": str(_STATE),
        "TRN_SANDBOX_RUNTIME": Catalog.load().release().runtime,
        "TRN_SYS_ROOT": str(_PLACE),
        "GIT_CONFIG_GLOBAL": str(_PLACE / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": str(_PLACE / "wheels"),
        "PIP_NO_INDEX": "1",
    }


def make(directory: Path) -> Path:
    """Create it for the cluster in `directory`; returns its folder. Programs put into its `bin` belong to the image as well."""
    where = directory / "image" / _PLACE.name
    programs = where / "bin"
    programs.mkdir(parents=True)
    made = head_node.repositories(where / "repositories")
    head_node.git_config(where, {name: _PLACE / "repositories" / name for name in made})
    head_node.wheels(where / "wheels")
    for folder in ("fakes", "modules"):
        shutil.copytree(
            Path(head_node.__file__).parent / "training" / folder,
            where / "training" / folder,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    head_node.compiler(where / "training/modules")
    pip = head_node.pip()
    base = head_node.quoted(getattr(sys, "_base_executable", sys.executable))
    _write(programs / "python3", _PYTHON.format(python=base, pip=pip or "", place=_PLACE))
    for name, module in (("torchrun", "torchrun"), ("neuron_parallel_compile", "parallel_compile")):
        _write(programs / name, _TOOL.format(place=_PLACE, module=module))
    for name in neuron_tools.NAMES:
        run = f"PYTHONPATH={_PLACE}/training exec {base} -m fakes.neuron_tools {name}"
        _write(programs / name, f'#!/bin/sh\n{run} "$@"\n')
    head_node.driver(where)
    state = where.with_name(_STATE.name)
    state.mkdir()
    state.chmod(0o1777)
    return where


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
