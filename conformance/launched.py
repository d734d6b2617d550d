"""The program that a job's node script starts: the script runs with a shell function that records the arguments of `python3`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox import head_node
from sandbox.slurm_packages import SYSTEM_PATH
from trainium_cdk.jobs import AnyJob, render
from trainium_cdk.outputs import SlurmCluster

_FUNCTIONS = r"""
cd() { export FOLDER=$1; }
mkdir() { :; }
sudo() { :; }
tee() { cat; }
python3() { env -0 > "$HOME/environment"; printf '%s\0' "$FOLDER" "$@" > "$HOME/started"; }
export -f cd mkdir sudo tee python3
bash "$@"
"""


@dataclass(frozen=True)
class Launched:
    """A recorded start of a training program.

    Attributes:
        launcher: options of torch.distributed.run.
        folder: its working directory, relative to the source trees.
        program: a file, or the name of a module.
        environment: exported variables, without the node's own.
    """

    launcher: tuple[str, ...]
    folder: str
    program: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def launched(job: AnyJob, cluster: SlurmCluster, *, stage: str = "train", **variables: str) -> Launched:
    """Run the node script of a rendered job until it starts its program.

    Args:
        variables: additional variables that the batch script exports, such as TRN_CHECKPOINT.

    Raises:
        RuntimeError: the script ended before that; the message has its output.
    """
    script = render(job, cluster, "conformance").files["node.sh"]
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        activate = home / cluster.venv / "bin/activate"
        activate.parent.mkdir(parents=True)
        activate.touch()
        compiler = home / "neuron_parallel_compile"
        compiler.write_text('#!/bin/bash\n"$@"\n')
        compiler.chmod(0o755)
        (home / "node.sh").write_bytes(script)
        given = {
            "HOME": temporary,
            "PATH": f"{home}{os.pathsep}{SYSTEM_PATH}",
            "SLURM_NODEID": "0",
            "SLURMD_NODENAME": "node",
            "NNODES": str(job.nodes),
            "MASTER_ADDR": "127.0.0.1",
            "TRN_SYS_ROOT": str(head_node.driver(home)),
            **variables,
        }
        command = ["bash", "-c", _FUNCTIONS, "bash", str(home / "node.sh"), "/shared/jobs/it", stage]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        if not (home / "started").exists():
            raise RuntimeError(f"node.sh did not start a program: {done.stdout}{done.stderr}")
        folder, *arguments = (home / "started").read_bytes().decode().split("\0")[:-1]
        pairs = (item.partition("=") for item in (home / "environment").read_text().split("\0") if item)
        environment = {name: value for name, _, value in pairs if name not in given and not name.startswith("BASH_")}
    assert arguments[:2] == ["-m", "torch.distributed.run"], arguments  # noqa: S101  the only launcher in use
    at = 2
    while arguments[at].startswith("--"):  # the launcher's options, all with a value
        at += 2
    options = tuple(arguments[2:at])
    at += arguments[at] == "-m"
    return Launched(
        options, folder.removeprefix("/shared/src/"), arguments[at], tuple(arguments[at + 1 :]), environment
    )
