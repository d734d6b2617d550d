"""Nodes that EC2 does not give, on a real Slurm with two compute resources of one type: a reservation, and on-demand nodes."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.support import need, until
from tests.told import told
from trainium_cdk.description.node.scripts import scripts_dir
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

NO_CAPACITY = "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"
RESERVED, FREE = "compute1-dy-reserved-[1-2]", "compute1-dy-free-[1-4]"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    configuration = copy.deepcopy(CONFIGURATION)
    [queue] = configuration["Scheduling"]["SlurmQueues"]
    [kind] = queue["ComputeResources"]
    queue["ComputeResources"] = [
        {**kind, "Name": "free", "MaxCount": 4, "DynamicNodePriority": 2000},
        {**kind, "Name": "reserved", "MaxCount": 2},
    ]
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), configuration) as running:
        yield running


@pytest.fixture
def backend(slurm: LocalSlurm) -> Iterator[SlurmBackend]:
    fleets = fleet(nodes=2, resource="reserved"), fleet(nodes=4, resource="free")
    yield SlurmBackend(make_cluster(*fleets), LocalTransport(env=slurm.node_env(), interval=0.2))
    for nodes in (RESERVED, FREE):
        slurm.run(["scontrol", "update", f"nodename={nodes}", "state=resume"])


def refuse(slurm: LocalSlurm, nodes: str) -> None:
    """As ParallelCluster's resume program does."""
    slurm.run(["scontrol", "update", f"nodename={nodes}", "state=down", f"reason={NO_CAPACITY}"])


def script(nodes: int, **given: str) -> Script:
    return Script(filename="x.sh", content=b"true", nodes=nodes, precompile=False, **given)


def test_the_reservation_is_used_first(backend: SlurmBackend) -> None:
    ended = backend.wait(backend.submit(script(2)).id, 600)
    assert (ended.state, ended.current.nodes) == ("COMPLETED", RESERVED)


def test_a_job_starts_where_plain_sbatch_would(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    """Also where the compute resource that is used first would be large enough."""
    refuse(slurm, RESERVED)
    ended = backend.wait(backend.submit(script(2)).id, 600)
    assert (ended.state, ended.current.nodes) == ("COMPLETED", "compute1-dy-free-[1-2]")


def test_what_ec2_reported_is_named(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    refuse(slurm, f"{FREE},{RESERVED}")  # in one second: Slurm lists nodes together that have one time
    job = backend.submit(script(2))
    assert until(lambda: "EC2 reported" in backend.status(job.id).current.reason)
    for found in (backend.status(job.id), next(j for j in backend.list() if j.id == job.id)):
        reason = found.current.reason
        assert reason.startswith("waits for nodes; EC2 reported InsufficientInstanceCapacity for compute1-dy-")
        assert "and ParallelCluster tries again at " in reason
        assert "compiled" not in reason
        told("no capacity", "ParallelCluster", "trn status", reason)
    chosen = backend.submit(script(1, compute_resource="free"))
    assert until(lambda: "EC2 reported" in backend.status(chosen.id).current.reason)
    slurm.run(["scontrol", "update", f"nodename={FREE}", "state=resume"])
    assert backend.wait(job.id, 600).current.nodes.startswith("compute1-dy-free-")
    assert backend.wait(chosen.id, 600).ok


def test_reserved_nodes_are_not_called_nodes_that_compiled(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    begins = ["starttime=now", "duration=60", "users=root", "flags=maint", f"nodes={RESERVED},{FREE}"]
    slurm.run(["scontrol", "create", "reservation", "reservationname=upgrade", *begins])
    try:
        job = backend.submit(script(1))
        assert until(lambda: "reserved" in backend.status(job.id).current.reason)
        assert "compiled" not in backend.status(job.id).current.reason
        backend.cancel(job.id)
    finally:
        slurm.run(["scontrol", "delete", "reservationname=upgrade"])


def test_a_capacity_block_that_is_not_active_is_named(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    """ParallelCluster reserves the nodes of a block that has not begun or has ended (capacity_block_manager.py of its node package)."""
    block = "cr-0a1b2c3d4e5f60718"
    name, begins = (
        f"reservationname=pcluster-{block}",
        ["starttime=now", "duration=infinite", "users=root", "flags=maint"],
    )
    slurm.run(["scontrol", "create", "reservation", name, *begins, f"nodes={RESERVED},{FREE}"])
    try:
        job = backend.submit(script(1))
        assert until(lambda: "capacity block" in backend.status(job.id).current.reason)
        told("expired block", "ParallelCluster", "trn status", backend.status(job.id).current.reason)
    finally:
        slurm.run(["scontrol", "delete", name])
    assert backend.wait(job.id, 600).ok


def test_a_lost_node_is_named(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    job = backend.submit(Script(filename="x.sh", content=b"echo begun; sleep 3600", nodes=1, precompile=False))
    log = Path(slurm.node_env()["TRN_SHARED_ROOT"], "efs/trn/jobs", job.id, "logs/train.log")
    assert until(lambda: log.exists() and "0: begun" in log.read_text())  # one that has not begun starts again at once
    node = backend.status(job.id).current.nodes
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=EC2 status check failed"])
    assert until(lambda: f"{node} is down" in backend.status(job.id).current.reason)
    told("lost node", "ParallelCluster", "trn status", backend.status(job.id).current.reason)
    backend.cancel(job.id)


def test_metrics_of_the_queue_are_those_of_slurm(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    """The service of the head node (`bootstrap/lib/metrics.py`) reads what a real Slurm prints."""
    refuse(slurm, FREE)
    job, log = backend.submit(script(3)), tmp_path / "trn-metrics.log"
    assert until(lambda: "EC2 reported" in backend.status(job.id).current.reason)
    program = [sys.executable, str(scripts_dir() / "lib/metrics.py"), "trn-slurm", str(log), "--queue", "--once"]
    subprocess.run(program, env=slurm.node_env(), check=True)
    _, whole, queue = map(json.loads, log.read_text().splitlines())
    assert (whole["JobsWaiting"], whole["JobsRunning"], whole["NodesFailed"], whole["NodesBusy"]) == (1, 0, 4, 0)
    assert 0 <= whole["LongestWait"] < 300
    assert (queue["Queue"], queue["NodesIdle"], queue["NodesFailed"]) == ("compute1", 2, 4)
    backend.cancel(job.id)


def test_a_job_waits_for_nodes_only_since_it_may_run(slurm: LocalSlurm, tmp_path: Path) -> None:
    """Not while it is held, or waits for another job: the alarm would be of a job that has hardly waited."""
    sbatch = ["sbatch", "--parsable", "-o/dev/null", "-N6", "--exclusive", "--wrap=sleep 300"]
    first, held = (slurm.run([*sbatch, *options]).stdout.strip() for options in ([], ["--hold"]))
    begun, log = time.time(), tmp_path / "trn-metrics.log"
    program = [sys.executable, str(scripts_dir() / "lib/metrics.py"), "trn-slurm", str(log), "--queue", "--once"]

    def measured() -> tuple[int, int]:
        log.unlink(missing_ok=True)
        subprocess.run(program, env=slurm.node_env(), check=True)
        whole = json.loads(log.read_text().splitlines()[1])
        return whole["JobsWaiting"], whole["LongestWait"]

    try:
        assert until(lambda: measured() == (0, 0))
        time.sleep(5)
        slurm.run(["scontrol", "release", held])
        assert until(lambda: measured()[0] == 1)
        assert measured()[1] < time.time() - begun - 4
    finally:
        slurm.run(["scancel", first, held])
