"""The training image, as pods here have it: images are not fetched, so its programs are put beside this machine's own.

`environment()` goes to `LocalKubernetes.start(job_environment=...)`; `make(cluster.directory)` then makes what it names. Pods
see it at `/image`. What trains is the stand-in that virtual Slurm nodes train with (see `sandbox/training`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox import head_node
from sandbox.training.standin import neuron_tools
from trainium_cdk.catalog import Catalog

_PLACE = Path("/image")
_PYTHON = """#!/bin/sh
PYTHONPATH={place}/training:{place}/training/modules {python} "$@" || exit
# an environment that is made here finds pip and torch, which the real image has among the packages of its system
if [ "${{1:-}} ${{2:-}}" = '-m venv' ]; then
  for last; do :; done
  for packages in "$last"/lib/python*/site-packages; do
    printf '%s\\n' {pip} {place}/training {place}/training/modules > "$packages/sandbox.pth"
  done
fi
"""
_TOOL = """#!/bin/sh
# What the stand-in asks of Slurm's environment, in that of a pod
export SLURM_JOB_ID="${{TRN_SANDBOX_POD%-train-*}}" SLURM_STEP_ID="${{NEURON_EXTRACT_GRAPHS_ONLY:-0}}"
export SLURM_RESTART_COUNT="${{TRN_ATTEMPT:-0}}" SLURMD_NODENAME="${{TRN_NODE:-node}}" SLURM_NODEID="${{VC_TASK_INDEX:-0}}"
PYTHONPATH={place}/training exec python3 -m standin.{module} "$@"
"""


def environment(shared: str, aws: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the commands of pods find set.

    Args:
        shared: a shared file system of the pods, as /efs: where their processes tell each other which ports they have.
        aws: of the local AWS, for those that fetch data (`LocalAws.variables`).
    """
    path = [str(_PLACE / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    return {
        **(aws or {}),
        "PATH": os.pathsep.join(path),
        "TRN_BACKEND": "tcp",
        "TRN_NXDT_REF": head_node.REF,
        "TRN_SAMPLES_REF": head_node.REF,
        "TRN_SANDBOX": f"{shared}/.sandbox",
        "TRN_SANDBOX_RUNTIME": Catalog.load().release().runtime,
        "TRN_SYS_ROOT": str(_PLACE),
        "GIT_CONFIG_GLOBAL": str(_PLACE / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": str(_PLACE / "wheels"),
        "PIP_NO_INDEX": "1",
    }


def make(directory: Path) -> Path:
    """Make it for the cluster in `directory`; returns where it is. Programs put into its `bin` are the image's, too."""
    where = directory / "image" / _PLACE.name
    programs = where / "bin"
    programs.mkdir(parents=True)
    made = head_node.repositories(where / "repositories")
    head_node.git_config(where, {name: _PLACE / "repositories" / name for name in made})
    head_node.wheels(where / "wheels")
    for folder in ("standin", "modules"):
        shutil.copytree(
            Path(head_node.__file__).parent / "training" / folder,
            where / "training" / folder,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    pip = head_node.pip()
    base = head_node.quoted(getattr(sys, "_base_executable", sys.executable))
    _write(programs / "python3", _PYTHON.format(python=base, pip=pip or "", place=_PLACE))
    for name, module in (("torchrun", "torchrun"), ("neuron_parallel_compile", "parallel_compile")):
        _write(programs / name, _TOOL.format(place=_PLACE, module=module))
    for name in neuron_tools.NAMES:
        run = f"PYTHONPATH={_PLACE}/training exec {base} -m standin.neuron_tools {name}"
        _write(programs / name, f'#!/bin/sh\n{run} "$@"\n')
    head_node.driver(where)
    return where


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
