"""The program that a job starts on a node, on either engine: the rendered files run in a real job folder, with a shell function in place
of `python3` that records its arguments and environment. On Slurm the batch script runs as well, without Slurm's own commands."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from conformance.confined import confined as confining
from sandbox import head_node
from sandbox.slurm_packages import SYSTEM_PATH
from trainium_cdk.jobs import AnyJob, Submission, kubernetes
from trainium_cdk.jobs.slurm.render import render
from trainium_cdk.outputs import EksCluster, SlurmCluster

Cluster = SlurmCluster | EksCluster

_RECORD = r"""python3() { env -0 > "$RECORDS/environment"; printf '%s\0' "$PWD" "$@" > "$RECORDS/started"; }"""
_FUNCTIONS = rf"""
cd() {{ mkdir -p "$1" && builtin cd "$1"; }}
sudo() {{ :; }}
{_RECORD}
export -f cd sudo python3
bash "$@"
"""
_STAGE = r"""
begin() { :; }
rendezvous() { export MASTER_ADDR=first-node NNODES=$SLURM_NNODES; }
compare_nodes() { :; }
launch() { bash "$job/node.sh" "$job" "$stage"; }
check_compiled() { :; }
keep_nodes() { :; }
"""
"""The functions of stage.sh that ask Slurm."""
_CALL = '{name}() {{ printf "%q " {name} "$@" >> "$RECORDS/calls"; echo >> "$RECORDS/calls"; }}\n'
_CORRECTED = "/script/launch.py"
"""What starts a program with corrections; their names and the program follow."""
_TOOLS = ("g++", "make", "python3-config")
"""What a `prepare` needs of the head node or the image."""
_SHELL = {"BASHOPTS", "SHELLOPTS", "PWD", "OLDPWD", "SHLVL", "_", "VIRTUAL_ENV", "RECORDS"}


@dataclass(frozen=True)
class Launched:
    """A recorded start of a training program.

    Attributes:
        folder: its working directory on the cluster.
        command: the arguments of `python3`.
        environment: exported variables, without those that Slurm, Kubernetes or the shell set.
    """

    folder: str
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def launcher(self) -> tuple[str, ...]:
        """Options of torch.distributed.run; empty for another program."""
        end = self._program - 2 if self.corrections else self._program
        return tuple(word for word in self.command[2:end] if word != "-m")

    @property
    def program(self) -> str:
        """A file, or the name of a module."""
        return self.command[self._program]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of the program."""
        return self.command[self._program + 1 :]

    @property
    def corrections(self) -> str:
        """Names of the corrections with which the program is started; empty for none."""
        at = self._program
        return self.command[at - 1] if at > 1 and self.command[at - 2].endswith(_CORRECTED) else ""

    @property
    def source(self) -> str:
        """The working directory, relative to the source tree."""
        return self.folder.partition("/trn/src/")[2].partition("/")[2]

    @property
    def _program(self) -> int:
        at = 0
        if self.command[:2] == ("-m", "torch.distributed.run"):
            at = 2
            while self.command[at].startswith("--"):  # the launcher's options, all with a value
                at += 2
        if self.command[at].endswith(_CORRECTED):
            at += 2
        return at + (self.command[at] == "-m")


def launched(
    job: AnyJob, cluster: Cluster, *, stage: str = "train", files: Iterable[str] = (), confined: bool = False
) -> Launched:
    """Run a stage of a rendered job on its first node until it has started its program.

    Args:
        files: files that exist on the cluster's shared file system.
        confined: as in a container: as the pods' user, without privileges, and only the pod's volumes can be written. Needs root.

    Raises:
        RuntimeError: the script failed; the message has its output.
    """
    with tempfile.TemporaryDirectory() as temporary:
        node = _Node(Path(temporary), job, cluster)
        compiler = node.root / "bin/neuron_parallel_compile"
        compiler.write_text('#!/bin/bash\n"$@"\n')
        compiler.chmod(0o755)
        node.write(files)
        if node.engine == "slurm":
            node.run(f"{stage}.sbatch", str(node.job))
        else:
            node.run("node.sh", stage, confined=confined)
        folder, *command = node.shown("started").split("\0")[:-1]
        pairs = (item.partition("=") for item in node.shown("environment").split("\0") if item)
        given = {*node.variables, *_SHELL}
        environment = {name: value for name, _, value in pairs if name not in given and not name.startswith("BASH_")}
    return Launched(folder, tuple(command), environment)


def prepared(job: AnyJob, cluster: Cluster, *, files: Iterable[str] = (), confined: bool = False) -> list[str]:
    """What the job's `prepare` fetches: a line for each call of a function of fetch.sh; empty without that stage. Nothing is fetched.

    Args:
        files, confined: as for `launched`.

    Raises:
        RuntimeError: the script failed; the message has its output.
    """
    with tempfile.TemporaryDirectory() as temporary:
        node = _Node(Path(temporary), job, cluster)
        if "prepare.sh" not in node.submission.files:
            return []
        node.write(files)
        library = node.files / "fetch.sh"
        text = library.read_text()
        names = [name for name in re.findall(r"^(\w+)\(\) ", text, re.MULTILINE) if name not in ("say", "die")]
        library.write_text(text + "".join(_CALL.format(name=name) for name in names))
        if node.engine == "slurm":
            node.run("prepare.sh", str(node.job), "fetch")
        else:
            node.run("node.sh", "prepare", confined=confined)
        return [line.rstrip() for line in node.shown("calls").splitlines()]


class _Node:
    """A node with the shared file system of a cluster, and the files of a job where they would be.

    Slurm's submission writes them into the job's directory, Kubernetes mounts them at /trn/job: there is no such directory here, so
    these two paths alone are replaced in the scripts.
    """

    def __init__(self, root: Path, job: AnyJob, cluster: Cluster) -> None:
        self.root, self.engine = root, "slurm" if isinstance(cluster, SlurmCluster) else "kubernetes"
        self.submission = rendered(job, cluster)
        self.job = root / self.submission.directory.lstrip("/")
        self.files = self.job if self.engine == "slurm" else root / "trn/job"
        for folder in (
            *(self.job / name for name in ("state", "logs", "work")),
            root / "bin",
            root / "run/trn",
            root / "records",
        ):
            folder.mkdir(parents=True)
        for path, content in self.submission.files.items():
            file = self.files / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.replace(b"=/trn/job", f"={root}/trn/job".encode()))
            if path == "pod.sh":
                file.write_bytes(content.replace(b"/run/trn/", f"{root}/run/trn/".encode()))
            elif path == "stage.sh":
                file.write_bytes(content + _STAGE.encode())
            file.chmod(0o755)
        self.variables = {
            "HOME": str(root / "home"),
            "PATH": f"{root}/bin{os.pathsep}{SYSTEM_PATH}",
            "TRN_SHARED_ROOT": str(root),
            "TRN_SYS_ROOT": str(head_node.driver(root)),
            "RECORDS": str(root / "records"),
        }
        environments = [self.job.parents[1] / "environments/made"]
        (self.job / "environment").write_text("made\n")
        if isinstance(cluster, SlurmCluster):
            environments.append(
                root / (cluster.venv.lstrip("/") if cluster.venv.startswith("/") else f"home/{cluster.venv}")
            )
            self.variables |= {
                **dict.fromkeys(("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0"),
                "SLURM_NTASKS": str(job.nodes * job.processes_per_node),
                "SLURM_NNODES": str(job.nodes),
                "SLURMD_NODENAME": "node",
            }
        else:
            self.variables |= {"JOB_COMPLETION_INDEX": "0", "TRN_NODE": "node", "TRN_ATTEMPT": "0", "HOSTNAME": "pod"}
        empty = [folder / "bin/activate" for folder in environments]
        for file in (*empty, *(root / "bin" / tool for tool in _TOOLS)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(0o755)

    def run(self, script: str, *arguments: str, confined: bool = False) -> None:
        command = ["bash", "-c", _FUNCTIONS, "bash", str(self.files / script), *arguments]
        if confined:
            self.root.chmod(0o755)
            shared = self.job.parents[1]
            (shared / "jobs").chmod(0o1777)
            own = [self.job, *(self.root / name for name in ("home", "run/trn", "records"))]
            command = confining(command, volumes=own, shared=shared)
        done = subprocess.run(command, env=self.variables, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode or not any((self.root / "records" / name).exists() for name in ("started", "calls")):
            output = f"exit code {done.returncode}: {done.stdout}{done.stderr}"
            raise RuntimeError(f"{script} of {self.submission.id} did not run to its end: {output}")

    def write(self, files: Iterable[str]) -> None:
        for name in files:
            file = self.root / name.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("content")

    def shown(self, record: str) -> str:
        """A record, with the paths that the cluster has."""
        return (
            (self.root / "records" / record)
            .read_text()
            .replace(str(self.root / "home"), "~")
            .replace(str(self.root), "")
        )


def rendered(job: AnyJob, cluster: Cluster) -> Submission:
    """The job as the engine of the cluster gets it; the same each time."""
    if isinstance(cluster, SlurmCluster):
        return render(job, cluster, "t")
    return cast("Submission", kubernetes.render(job, cluster, "t"))
