"""A device that breaks under a training on a real Slurm: root takes the node away, and the job goes on with another one. Seconds stand for minutes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import Jobs, Sent
from tests.runner.test_hangs import jobs as jobs
from tests.runner.test_hangs import kinds, told, train
from trainium_cdk.node.scripts import scripts_dir
from trainium_cdk.runner import records
from trainium_cdk.runner.spec import Health
from trainium_cdk.runner.work import devices, health

MEM = "mem_ecc_uncorrected"
FAST = Health(every=0.4, least=30.0)


class Driver:
    """The driver's files of one node, and root's service that reads them. The service itself is what nodes run."""

    def __init__(self, slurm: LocalSlurm, root: Path, node: str, *action: str) -> None:
        self.root, self.node = root, node
        for device in (0, 1):
            self.put(0, device)
        words = (*(action or ("replace", "drain")), MEM, "--node", node, "--root", str(root), "--every", "0.2")
        self.service = subprocess.Popen(
            [sys.executable, "-I", Path(str(scripts_dir())) / "lib/devices.py", *words], env=slurm.node_env()
        )

    def put(self, count: int, device: int = 1) -> None:
        file = self.root / f"sys/devices/virtual/neuron_device/neuron{device}/stats/hardware/{MEM}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{count}\n")

    def end(self) -> None:
        self.service.terminate()
        self.service.wait()


@contextlib.contextmanager
def measured(slurm: LocalSlurm, root: Path, *action: str) -> Iterator[dict[str, Driver]]:
    """All nodes have the service; afterwards all can be used again."""
    found = {name: Driver(slurm, root / name, name, *action) for name in slurm.node_names}
    try:
        yield found
    finally:
        for one in found.values():
            one.end()
        for name in found:
            slurm.run(["scontrol", "update", f"nodename={name}", "comment="])
            if "drain" in state(slurm, name):
                slurm.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def state(slurm: LocalSlurm, node: str, field: str = "%T") -> str:
    return slurm.run(["sinfo", "-h", "-N", "-a", "-n", node, "-o", field]).stdout.strip()


def on(slurm: LocalSlurm, sent: Sent) -> list[str]:
    return slurm.run(["scontrol", "show", "hostnames", sent.running().nodes]).stdout.split()


def begins_soon(slurm: LocalSlurm, sent: Sent, attempt: int) -> None:
    """Slurm itself would wait for some minutes before it starts a stage again."""
    limit = time.monotonic() + 120
    while not ((now := sent.state()) and now.attempt >= attempt and now.state == records.RUNNING):
        assert time.monotonic() < limit, sent.log()
        slurm.run(["scontrol", "update", f"JobId={sent.numbers['train']}", "StartTime=now"])
        time.sleep(1)


def test_a_device_error_takes_the_node_away_and_the_job_goes_on_with_another(jobs: Jobs, tmp_path: Path) -> None:
    """Drained with the reason, started again without it, from the newest checkpoint: no step runs twice at a time."""
    slurm = jobs.slurm
    with measured(slurm, tmp_path) as nodes:
        sent = train(jobs, FAST, SLOW="0.3")
        sent.says("step 12/30")
        first = on(slurm, sent)
        nodes[first[1]].put(2)
        sent.says("a node is broken: Slurm starts the stage again, on others")
        begins_soon(slurm, sent, 1)
        second = on(slurm, sent)
        assert first[1] not in second
        assert state(slurm, first[1]).startswith("drain")
        assert state(slurm, first[1], "%E").startswith("trn-devices 1")
        assert sent.ended().code == 0, sent.log()
        assert sent.left() == "COMPLETED"
        [error, *_] = [one for one in told(sent) if one.kind == "device"]
        assert error.evidence == f"{first[1]}: neuron1/stats/hardware/{MEM} 0 to 2"
        assert error.node == 1
        assert "restarted" in kinds(sent)
        assert sent.log().count("begins after step 10") == 2
        begun = [line.split() for line in (sent.folder / "begun").read_text().splitlines()]
        assert sorted((a, n) for a, n, *_ in begun) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
        assert devices.moved(sent.folder).nodes == first[1]
