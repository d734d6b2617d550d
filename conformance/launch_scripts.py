"""What the vendors' launch scripts start: a script runs, at its commit, with shell functions in place of `torchrun` and of all commands
that would change or ask this machine, and its arguments and exported variables are recorded."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from conformance.upstream import Tree
from sandbox.slurm_packages import SYSTEM_PATH

PLACES: Mapping[str, Mapping[str, str]] = {
    "slurm": {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "first-node", "SLURM_NNODES": "4", "SLURM_NODEID": "0", "SLURM_NTASKS": "4",
    },
    "mpi": {
        "ARTIFACT_PATH": "/shared/artifacts", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "POD_UID": "uid",
        "SHARED_PATH_PREFIX": "/shared",
    },
    "alone": {},
}  # fmt: skip
"""Where the scripts find themselves, by the variables that they look at: 4 nodes of Slurm, 4 of Open MPI (on EKS), or one node."""

_NONE = ("cp", "curl", "hf", "lctl", "mkdir", "mv", "pip3", "python", "rm", "rsync", "sudo", "sysctl", "tee", "ulimit")
_COMMANDS = {
    **dict.fromkeys(_NONE, ":"),
    "scontrol": "echo first-node",
    "nslookup": 'printf "Name: first-node\\nAddress: 10.0.0.1\\n"',
    "neuron-ls": 'for i in {0..15}; do echo "| $i | 2 |"; done',  # trn1.32xlarge: 16 devices of 2 NeuronCores
    "hostname": "echo node",
    "/nodelist_helper.py": "echo first-node",
    "/root/nodelist_helper.py": "echo first-node",
    "torchrun": 'env -0 > "$RECORDS/environment"; printf "%s\\0" "$@" > "$RECORDS/started"',
}
_SHELL = {"BASHOPTS", "OLDPWD", "PWD", "RECORDS", "SHELLOPTS", "SHLVL", "_"}


def launches(tree: Tree, path: str, places: Iterable[str]) -> dict[str, dict[str, object]]:
    """The `command` and the `environment` that a script starts `torchrun` with, by place.

    Raises:
        RuntimeError: it started none; the message has its output.
    """
    return {place: _launch(tree, PurePosixPath(path), PLACES[place]) for place in places}


def _launch(tree: Tree, path: PurePosixPath, variables: Mapping[str, str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        if str(path.parent) == ".":
            (root / path.name).write_text(tree.read(str(path)) or "")
        else:
            tree.copy(str(path.parent), root)
        for script in (root / path.parent).glob("*.sh"):
            script.chmod(0o755)  # not all are executable in their repositories
        functions = root / "functions.sh"  # every bash reads it, also one that the script starts
        functions.write_text("".join(f"{name}() {{ {body}; }}\n" for name, body in _COMMANDS.items()))
        given = {
            "BASH_ENV": str(functions),
            "HOME": str(root / "home"),
            "PATH": SYSTEM_PATH,
            "RECORDS": temporary,
            **variables,
        }
        done = subprocess.run(
            ["bash", path.name],
            env=given, cwd=root / path.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not (root / "started").exists():
            raise RuntimeError(f"{path} did not start torchrun: {done.stdout}{done.stderr}")
        here, home = f"{temporary}{os.sep}", str(root / "home")
        words, exported = (
            (root / name).read_text().replace(home, "~").replace(here, "").split("\0")[:-1]
            for name in ("started", "environment")
        )
    pairs = dict(item.split("=", 1) for item in exported)
    environment = {k: v for k, v in sorted(pairs.items()) if k not in {*given, *_SHELL}}
    return {"command": shlex.join(words), "environment": environment}
