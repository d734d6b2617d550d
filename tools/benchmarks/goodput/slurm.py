"""A real Slurm on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.runner.test_devices import Driver
from tests.support import until
from tools.benchmarks.goodput.figure import Fault
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import HealthRules

_PATIENCE = 300.0


class Slurm:
    """A real Slurm on this machine."""

    name = "slurm"

    def __init__(self, slurm: LocalSlurm, nodes: int) -> None:
        self._slurm = slurm
        self._backend = SlurmBackend(
            make_cluster(fleet(nodes=nodes)), LocalTransport(env=slurm.node_env(), interval=0.2)
        )
        self._numbers: dict[str, str] = {}
        self.place = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs"
        self.inside = str(self.place)

    def send(self, job: Script, rules: HealthRules) -> str:
        made = self._backend.render(job)
        [sent] = self._backend.send(dataclasses.replace(made, spec=dataclasses.replace(made.spec, health=rules)))
        self._numbers[sent.id] = sent.stages["train"]
        return sent.id

    def has_ended(self, id: str) -> bool:
        return self._backend.status(id).done

    def hangs(self, id: str) -> bool:
        return bool(self._backend.status(id).findings)

    def cancel(self, id: str) -> None:
        self._backend.cancel(id)
        until(lambda: self._squeue(id, "%T") not in ("RUNNING", "COMPLETING"), _PATIENCE)

    def lose(self, id: str, fault: Fault, goes_on: Callable[[], bool]) -> float:
        names = self._slurm.run(["scontrol", "show", "hostnames", self._squeue(id, "%N")]).stdout.split()
        name = names[fault.node]
        if fault.kind == "spot":
            self._slurm.end_node(name)
        if fault.kind == "device":
            self._break_a_device(id, name)
        self._slurm.kill_node(name)
        self._slurm.run(["scontrol", "update", f"nodename={name}", "state=down", "reason=hardware"])
        self._slurm.replace_node(name)
        for _ in range(40):  # Slurm holds a job that it starts again for some minutes, in which a new node would start
            self._slurm.run(["scontrol", "update", f"JobId={self._numbers[id]}", "StartTime=now+1"])
            if until(goes_on, 15):
                return time.mktime(time.strptime(self._squeue(id, "%S"), "%Y-%m-%dT%H:%M:%S"))
        raise TimeoutError(f"Slurm does not begin {id} again")

    def _break_a_device(self, id: str, name: str) -> None:
        """Its driver counts an error. Returns when root has taken the node away, and the job has left it."""
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(self._slurm, Path(folder), name)
            try:
                driver.begins(self._slurm)
                driver.put(1)
                until(lambda: self._squeue(id, "%T") != "RUNNING", _PATIENCE)
            finally:
                driver.end()
                self._slurm.run(["scontrol", "update", f"nodename={name}", "comment="])

    def _squeue(self, id: str, what: str) -> str:
        words = ["squeue", "-h", "-a", "-t", "all", "-j", self._numbers[id], "-o", what]
        return self._slurm.run(words).stdout.strip()


@contextlib.contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Slurm]:
    """One with so many nodes."""
    resource = {
        "Name": "trn",
        "InstanceType": "trn1.32xlarge",
        "MinCount": 0,
        "MaxCount": nodes,
        "Efa": {"Enabled": True},
    }
    queue = {"Name": "compute1", "JobExclusiveAllocation": True, "ComputeResources": [resource]}
    made = {"Scheduling": {"Scheduler": "slurm", "SlurmQueues": [queue]}}
    with LocalSlurm.start(
        folder, {**made, "SharedStorage": [{"Name": "efs", "StorageType": "Efs", "MountDir": "/efs"}]}
    ) as one:
        yield Slurm(one, nodes)
