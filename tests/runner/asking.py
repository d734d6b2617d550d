"""The runner on the head node of a real Slurm, asked as a client asks it: a process, a request, an answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner.requests import Cancel, Cluster, Outcome, Status, SubmitJobs, read_answer, write_request
from trainium_cdk.runner.spec import JobSpec, Place, PrepareStep, Program, Slurm, StageSpec

CLUSTER = Cluster("/efs", "trn", "i-0123456789abcdef0", "trn-slurm", "TrnPclusterStack", "us-east-1")
WAITS = 'until [ -e "$1" ]; do sleep 0.1; done; exit "$(cat "$1")"'


class Head:
    """The head node. `env`: of its processes."""

    def __init__(self, slurm: LocalSlurm, python: str = "/usr/bin/python3") -> None:
        self.slurm, self.python, self.env = slurm, python, slurm.node_env()
        self.shared = Path(self.env["TRN_SHARED_ROOT"]) / "efs"
        self.jobs = self.shared / "trn/jobs"
        self.runner = self.shared / "trn-runner" / f"{pyz().name}.pyz"
        self.runner.parent.mkdir(exist_ok=True)
        if not self.runner.exists():  # a job may be reading it
            self.runner.write_bytes(pyz().content)

    def words(self) -> list[str]:
        return [self.python, "-I", str(self.runner), "ask"]

    def told(self, given: Any, cluster: Cluster = CLUSTER, env: Mapping[str, str] | None = None) -> Any:
        """The document that the runner prints; None if it printed none."""
        done = subprocess.run(
            self.words(),
            input=json.dumps(write_request(cluster, given)),
            env=env or self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stderr, done.stderr
        return json.loads(done.stdout) if done.stdout else None

    def ask(self, given: Any, cluster: Cluster = CLUSTER, env: Mapping[str, str] | None = None) -> Any:
        told = self.told(given, cluster, env)
        assert "answer" in told, told
        return read_answer(given, told["answer"])

    def submit(self, *jobs: JobSpec, env: Mapping[str, str] | None = None, **addresses: str) -> list[Any]:
        return list(self.ask(SubmitJobs(jobs, addresses), env=env))

    def refused(self, job: JobSpec, kind: str = "refused", env: Mapping[str, str] | None = None) -> str:
        """The message with which a job is refused."""
        [one] = self.submit(job, env=env)
        assert one.error, one
        assert one == Outcome(error=one.error)
        assert one.error.kind == kind, one
        return str(one.error.message)

    def status(self, id: str) -> Any:
        return self.ask(Status(id))

    def cancel(self, id: str) -> Any:
        return self.ask(Cancel(id))

    def states(self, id: str) -> list[str]:
        """Of a job's stages, or an array's members."""
        found = self.status(id)
        return [one.state for one in found.members or found.stages]

    def rows(self, id: str = "") -> list[str]:
        """State and name of each Slurm job that was not cancelled, of one of ours or of all."""
        lines = self.slurm.run(["squeue", "-h", "-a", "-r", "-t", "all", "-o", "%T %j %k"]).stdout.splitlines()
        return sorted(
            line.rpartition(" ")[0]
            for line in lines
            if not line.startswith("CANCELLED") and (line.endswith(f" trn:{id}") or not id)
        )

    def having(self, folder: Path, name: str, script: str) -> dict[str, str]:
        """Variables with which a bash script comes before a program and ends with it; `$real` is the program."""
        real = self.slurm.run(["bash", "-c", f"type -p {name}"]).stdout.strip()
        (folder / name).write_text(f'#!/bin/bash\nreal={real}\n{script}\nexec "$real" "$@"\n')
        (folder / name).chmod(0o755)
        return {**self.env, "PATH": f"{folder}:{self.env['PATH']}"}


def job(
    id: str, body: str = "true", *words: str, precompile: bool = False, fetches: object = "", **changes: Any
) -> JobSpec:
    """A job whose program is a line of shell, with these arguments. `fetches`: a git repository that `prepare` fetches."""
    program = Program(("bash", "-c", body, "program", *words), (Place("job"), "/work"))
    names = [*(["prepare"] if fetches else []), *(["precompile"] if precompile else []), "train"]
    stages = tuple(StageSpec(name, program=None if name == "prepare" else program) for name in names)
    steps = (PrepareStep("source", {"name": id, "url": f"file://{fetches}", "commit": "HEAD"}),) if fetches else ()
    return JobSpec(**{"id": id, "kind": "script", "stages": stages, "prepare": steps, "slurm": on_slurm(), **changes})


def on_slurm(**changes: Any) -> Slurm:
    return Slurm(**{"queue": "compute1", "prepare_queue": "compute1", "cluster": CLUSTER.identity, **changes})


@pytest.fixture
def paused(slurm: LocalSlurm) -> Iterator[None]:
    """A queue that takes jobs and starts none."""
    slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])
    yield
    slurm.run(["scontrol", "update", "PartitionName=compute1", "State=UP"])
