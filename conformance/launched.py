"""The program that the runner starts on a node for a job, on either engine: in a real job folder, with a `python3` that records its arguments
and environment. Slurm and Kubernetes themselves have no part in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from conformance.confined import confined as confining
from sandbox import head_node
from sandbox.slurm_packages import SYSTEM_PATH
from trainium_cdk.client.jobs.job_spec import job_id, job_spec
from trainium_cdk.client.jobs.kubernetes import parts as names
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.description.outputs import EksCluster, SlurmCluster
from trainium_cdk.jobs import AnyJob
from trainium_cdk.runner import files, layout, records, spec
from trainium_cdk.runner.layout import resolve
from trainium_cdk.runner.work import places

Cluster = SlurmCluster | EksCluster
PYTHON = "/usr/bin/python3"
"""What a node starts the runner with."""
_RECORD = f"""#!{PYTHON} -I
import os, sys
from pathlib import Path

words = sys.argv[1:]
if words[0].endswith("/phase2.py"):  # it starts the program
    os.execv("{PYTHON}", ["{PYTHON}", *words])
records = Path(os.environ["RECORDS"])
records.joinpath("environment").write_bytes(Path("/proc/self/environ").read_bytes())
records.joinpath("started").write_bytes(b"".join(os.fsencode(word) + b"\\0" for word in (os.getcwd(), *words)))
"""
_POD = """import sys
from pathlib import Path

root, runner, stage = sys.argv[1:]
sys.path.insert(0, runner)
from runner.work import pod

pod.GIVEN, pod._SECRET, pod._MESSAGE = Path(root, "trn"), Path(root, "trn/env/env.json"), Path(root, "records/message")
pod.main(stage)
"""
"""What Kubernetes mounts at /trn is below a folder here."""
_OF_SHELLS = {"PWD", "OLDPWD", "SHLVL", "_", "VIRTUAL_ENV", "LC_CTYPE"}
_OF_THIS_START = {"TRN_CHECKPOINTS_FAST", "TRN_PROGRESS"}
"""A new folder of this node, and a file of one, which no vendor's program knows."""


_CORRECTED = "/files/launch.py"
"""What starts a program with corrections; their names and the program follow."""


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


class Described(NamedTuple):
    """A job for a cluster, as data; the same each time."""

    spec: spec.Job
    folder: str
    """On the cluster."""


def described(job: AnyJob, cluster: Cluster) -> Described:
    name = job_id(job, "t")
    folder_of = names.object_name if isinstance(cluster, EksCluster) else str
    name = folder_of(name)
    made = job_spec(name, plan(job, cluster), folder_of=folder_of)
    return Described(made, f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}")


def prepared(job: AnyJob, cluster: Cluster) -> list[str]:
    """What the job's `prepare` fetches: a line for each step."""
    return [f"{step.do}: {read_words(step.with_)}" for step in described(job, cluster).spec.prepare]


def read_words(value: Any) -> str:
    """Words, or the arguments of a step, as a person reads them: a place is `<job>`; one with a space has quotes around it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {read_words(one)}" for key, one in value.items() if one or one is False)
    parts = (
        value if isinstance(value, tuple) and any(isinstance(part, spec.Place | spec.Only) for part in value) else None
    )
    if parts is None and isinstance(value, list | tuple):
        return " ".join(map(read_words, value))
    made = "".join(_read_part(part) for part in parts or (value,))
    return repr(made) if " " in made.replace("<only ", "") else made


def _read_part(part: Any) -> str:
    if isinstance(part, spec.Only):
        return f"<only {read_words(part.of)}>"
    return f"<{part.name}>" if isinstance(part, spec.Place) else str(part)


def launched(
    job: AnyJob,
    cluster: Cluster,
    *,
    stage: str = "train",
    files: Iterable[str] = (),
    confined: bool = False,
) -> Launched:
    """Run a stage of a job on its first node until it has started its program.

    Args:
        files: files that exist on the cluster's shared file system.
        confined: as in a container: as the pods' user, without privileges, and only the pod's volumes can be written. Needs root.

    Raises:
        RuntimeError: the runner failed; the message has its output.
    """
    with tempfile.TemporaryDirectory() as temporary:
        node = _Node(Path(temporary), job, cluster)
        node.write(files)
        node.run(stage, confined=confined)
        folder, *command = node.shown("started").split("\0")[:-1]
        pairs = (item.partition("=") for item in node.shown("environment").split("\0") if item)
        given = {*node.variables, *_OF_SHELLS, *_OF_THIS_START}
        return Launched(folder, tuple(command), {name: value for name, _, value in pairs if name not in given})


class _Node:
    """A node with the shared file system of a cluster below `root`, and a job's folder where it would be."""

    def __init__(self, root: Path, job: AnyJob, cluster: Cluster) -> None:
        self.root = root
        self.spec, folder = described(job, cluster)
        self.job = root / folder.lstrip("/")
        self.runner = root / "runner.pyz"
        self.runner.write_bytes(pyz().content)
        (root / "records").mkdir()
        for name, text in {
            "sudo": "#!/bin/sh\n",
            "neuron_parallel_compile": '#!/bin/sh\nexec "$@"\n',
            "python3": _RECORD,
        }.items():
            program(root / "bin" / name, text)
        environments = [self.job.parents[1] / "environments/made"]
        self.variables = {
            "HOME": str(root / "home"),
            "PATH": f"{root}/bin{os.pathsep}{SYSTEM_PATH}",
            "TRN_SHARED_ROOT": str(root),
            "TRN_SYS_ROOT": str(head_node.driver(root)),
            "RECORDS": str(root / "records"),
        }
        if isinstance(cluster, SlurmCluster):
            environments.append(
                root / cluster.venv.lstrip("/") if cluster.venv.startswith("/") else root / "home" / cluster.venv
            )
            layout.lay_out(self.job, self.spec)
            ranks = dict.fromkeys(("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0")
            tasks = {"SLURM_NTASKS": str(job.nodes * job.processes_per_node), "SLURM_JOB_NUM_NODES": str(job.nodes)}
            self.variables |= {**ranks, **tasks, "SLURMD_NODENAME": "node"}
        else:
            self.variables |= {"JOB_COMPLETION_INDEX": "0", "TRN_NODE": "node", "TRN_ATTEMPT": "0", "TRN_JOB": folder}
            given = {"job": spec.to_json(self.spec), "env": dict(self.spec.variables)}
            for name, value in given.items():
                (root / "trn" / name).mkdir(parents=True)
                files.write_json(root / "trn" / name / f"{name}.json", value)
            for number in range(job.nodes):
                (self.job / "state").mkdir(parents=True, exist_ok=True)
                records.mark(self.job, "precompile", "0", "done", number)
        (self.job / "environment").write_text("made\n")
        there = {"job": str(self.job), "trn": str(self.job.parents[1])}
        for stage in self.spec.stages:
            if stage.program:  # a source, which `prepare` has fetched
                Path(resolve(stage.program.folder, there)).mkdir(parents=True, exist_ok=True)
        for place in environments:
            program(place / "bin/activate", "")
            program(place / "bin/python3", _RECORD)

    def run(self, stage: str, *, confined: bool) -> None:
        variables: Mapping[str, str] = {**self.variables, "MASTER_ADDR": "first-node"}
        if self.spec.slurm:
            command = [PYTHON, "-I", str(self.runner), "node", str(self.job), stage]
            if checkpoint := places.find_checkpoint(self.spec, self.job):  # as the batch script does
                self.variables["TRN_CHECKPOINT"] = checkpoint
                variables = {**variables, "TRN_CHECKPOINT": checkpoint}
        else:
            command = [PYTHON, "-I", "-c", _POD, str(self.root), str(self.runner), stage]
            variables = {**variables, "MASTER_ADDR": names.host(self.spec.id, 0)}
        if confined:
            self.root.chmod(0o755)
            shared = self.job.parents[1]
            (shared / "jobs").chmod(0o1777)
            own = [self.job, *(self.root / name for name in ("home", "records"))]
            command = confining(command, volumes=own, shared=shared)
        done = subprocess.run(command, env=variables, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode or not (self.root / "records/started").exists():
            output = f"exit code {done.returncode}: {done.stdout}{done.stderr}"
            raise RuntimeError(f"{stage} of {self.spec.id} did not run to its end: {output}")

    def write(self, files: Iterable[str]) -> None:
        for name in files:
            file = self.root / name.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("content")

    def shown(self, record: str) -> str:
        """A record, with the paths that the cluster has."""
        found = (self.root / "records" / record).read_text()
        return found.replace(str(self.root / "home"), "~").replace(str(self.root), "")


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
