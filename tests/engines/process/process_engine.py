"""A third engine: jobs are processes of this machine. All that it is lies in this folder; an entry point registers it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trainium_cdk.catalog import Catalog, Need, Stack
from trainium_cdk.engines import Engine
from trainium_cdk.errors import JobError, UnknownJob
from trainium_cdk.jobs import AnyJob, Backend, JobStatus, LogChunk, Submission, Submitted, Tunnel, job_id, new_token
from trainium_cdk.jobs import Stage as JobStage
from trainium_cdk.jobs.plan import plan
from trainium_cdk.outputs import ClusterOutputs, Exports, Fleet
from trainium_cdk.outputs.contract import COMMON_KEYS, Keys, export
from trainium_cdk.settings import Environment, NodeGroup
from trainium_cdk.settings.inventory import Inventory, Part
from trainium_cdk.settings.section import Nodes, Section


class Process(Section):
    """Processes of one machine."""

    machine: str = "here"
    """Its name."""
    slots: NodeGroup = NodeGroup(name="slots", instance_type="trn1.2xlarge", max_nodes=1)
    """What a process takes."""

    def nodes(self) -> Iterator[Nodes]:
        yield Nodes(("process", "slots"), ("process", "slots"), self.slots, self.slots)

    def need(self, catalog: Catalog, families: tuple[str, ...]) -> Need:
        return Need("process", families, system="ubuntu2204")


class ProcessInventory(Inventory):
    @property
    def cluster(self) -> str:
        return f"{self.env.name}-process"

    def versions(self, release: str, families: tuple[str, ...]) -> Stack:
        env = self.env
        return Stack.slurm(env.catalog, families, release=release, framework=env.framework, system="ubuntu2204")

    def others(self) -> Iterator[Part]:
        """A machine that starts the processes, and a service that counts them."""
        key = ("process", "machine")
        yield Part(
            name="dispatcher", key=key, instance_type="m5.large", addresses=3, public_addresses=1, volume_gib=100
        )
        yield Part(name="counter", detail="first edition", price="counter-hour")


class ProcessCluster(ClusterOutputs):
    keys: ClassVar[Keys] = {**COMMON_KEYS, "Machine": ("machine", "Where the processes run")}

    engine: str = "process"
    machine: str


PROCESS = Engine(
    name="process",
    title="processes",
    section="process",
    stack="TrnProcessStack",
    settings="process_engine:Process",
    inventory="process_engine:ProcessInventory",
    outputs="process_engine:ProcessCluster",
    jobs="process_engine:connect",
    stack_class="process_stack:TrnProcessStack",
    queue_noun="slots",
    nodes_noun="slots",
)


def connect(
    cluster: ProcessCluster,
    *,
    local: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> ProcessBackend:
    return ProcessBackend(cluster)


def section(env: Environment) -> Process:
    found: Process = getattr(env, PROCESS.section)
    return found


def process_outputs(env: Environment) -> Exports:
    slots = section(env).slots
    kind = env.catalog.instance(slots.instance_type)
    fleet = Fleet(
        queue=slots.name, resource=slots.name, instance_type=kind.name, nodes=slots.max_nodes, devices=kind.neuron_devices,
        cores=kind.logical_cores(), efa=0, family=kind.family,
    )  # fmt: skip
    values = dict.fromkeys((name for name, _ in ProcessCluster.keys.values()), "") | {
        "cluster_name": f"{env.name}-process",
        "machine": section(env).machine,
        "shared_dir": env.storage.shared_dir,
        "mount_dirs": ",".join(env.storage.mount_dirs),
        "kernel": "5.15",
        "neuron_release": env.release.version,
        "framework": env.framework,
    }
    return export(PROCESS.name, ProcessCluster.keys, values, [fleet])


@dataclass(frozen=True)
class ProcessSubmission(Submission):
    script: str = ""

    @property
    def text(self) -> str:
        return self.script


class ProcessBackend(Backend[ProcessSubmission]):
    """A folder for each job: what it runs, its process group, its log, its exit code."""

    ordered_logs = True
    interval = 0.1

    def __init__(self, cluster: ProcessCluster):
        self.cluster = cluster
        self._jobs = Path(os.environ["PROCESS_ROOT"], "jobs")

    def render(self, job: AnyJob, token: str | None = None) -> ProcessSubmission:
        name, fitted = job_id(job, new_token() if token is None else token), plan(job, self.cluster)
        folder = self._jobs / name
        text = f"#!/bin/bash\njob={folder} stage=train NODE_RANK=0\n{job.template(fitted).node}\n"
        return ProcessSubmission(name, str(folder), fitted, dict(job.files), text)

    def send(self, submission: ProcessSubmission) -> Submitted:
        folder = Path(submission.directory)
        existing = folder.exists()
        if not existing:
            for part in ("work", "script"):
                (folder / part).mkdir(parents=True)
            for name, content in submission.files.items():
                (folder / "script" / name).write_bytes(content)
                (folder / "script" / name).chmod(0o700)
            (folder / "run.sh").write_text(submission.text)
            (folder / "job.json").write_text(json.dumps({"kind": submission.plan.job.kind}))
            run = f"bash {folder}/run.sh > {folder}/train.log 2>&1; echo $? > {folder}/code"
            process = subprocess.Popen(
                ["bash", "-c", run],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            (folder / "pid").write_text(str(process.pid))
        return Submitted(submission.id, existing, {"train": (folder / "pid").read_text()}, str(folder))

    def status(self, id: str) -> JobStatus:
        folder = self._jobs / id
        if not (folder / "pid").exists():
            raise UnknownJob(f"there is no job {id!r}. `trn list` shows the existing jobs")
        cancelled, ended = (folder / "cancelled").exists(), (folder / "code").exists()
        code = int((folder / "code").read_text() or 0) if ended else None
        state = "CANCELLED" if cancelled else "RUNNING" if code is None else "FAILED" if code else "COMPLETED"
        stage = JobStage("train", (folder / "pid").read_text(), state, exit_code=code)
        fleet = self.cluster.fleets[0]
        kind = json.loads((folder / "job.json").read_text())["kind"]
        return JobStatus(id, kind, fleet.queue, fleet.instance_type, 1, None, (stage,), str(folder))

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        return tuple(self.status(folder.name) for folder in sorted(self._jobs.glob("*"), reverse=True)[:limit])

    def active(self) -> tuple[JobStatus, ...]:
        return tuple(job for job in self.list() if not job.done)

    def cancel(self, id: str) -> JobStatus:
        if not self.status(id).done:
            (self._jobs / id / "cancelled").touch()
            os.killpg(int((self._jobs / id / "pid").read_text()), signal.SIGTERM)
        return self.status(id)

    def run_shared(self, script: str, *, image: str | None = "", folder: str = "", private: bool = False) -> str:
        return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        follow: bool = False,
        offset: int = 0,
        tail: int | None = None,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        while True:
            status = self.status(id)
            if changed:
                changed(status)
            data = (self._jobs / id / "train.log").read_bytes()[offset:]
            if data:
                yield LogChunk("train", offset, data)
                offset += len(data)
            elif status.done or not follow:
                return
            time.sleep(0.05)

    def node_of_rank(self, id: str, rank: int) -> int:
        return 0

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        return subprocess.run(command, cwd=self.status(id).directory, check=False).returncode

    def forward(
        self, id: str, port: int = 0, *, node: int | str = 0, local: int = 0, patience: float = 0
    ) -> AbstractContextManager[Tunnel]:
        raise JobError(f"{id} runs on this machine: open http://127.0.0.1:{port}/")

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[Tunnel]:
        raise JobError(f"run tensorboard --logdir {self._jobs / id}")
