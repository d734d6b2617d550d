"""What a job's node script would start: the script runs, and a function in place of `python3` notes the program and its arguments."""

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
    """One start of a training program.

    Attributes:
        launcher: options of torch.distributed.run.
        folder: where it starts, below the folder of the source trees.
        program: a file, or the name of a module.
        environment: all that is exported then, without the node's own.
    """

    launcher: tuple[str, ...]
    folder: str
    program: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def launched(job: AnyJob, cluster: SlurmCluster, *, stage: str = "train", **variables: str) -> Launched:
    """Run the node script of a rendered job up to its program.

    Args:
        variables: what the batch script exports besides, as TRN_CHECKPOINT.

    Raises:
        RuntimeError: the script ended before; its output is in the message.
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
            raise RuntimeError(f"node.sh has started no program: {done.stdout}{done.stderr}")
        folder, *words = (home / "started").read_bytes().decode().split("\0")[:-1]
        pairs = (item.partition("=") for item in (home / "environment").read_text().split("\0") if item)
        environment = {name: value for name, _, value in pairs if name not in given and not name.startswith("BASH_")}
    assert words[:2] == ["-m", "torch.distributed.run"], words  # noqa: S101  the one launcher that kinds use
    at = 2
    while words[at].startswith("--"):  # the launcher's options, all with a value
        at += 2
    options = tuple(words[2:at])
    at += words[at] == "-m"
    return Launched(options, folder.removeprefix("/shared/src/"), words[at], tuple(words[at + 1 :]), environment)
