"""Failures of a cluster of AWS PCS as `trn status` tells them: a real Slurm as the sandbox's PCS plans it. On ParallelCluster's nodes:
test_slurm.py, test_capacity.py. What PCS itself reports: tests/operations/test_why.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.slurm import LocalSlurm, available
from tests.runner.test_devices import Driver, state
from tests.support import begins_again, file_system, fill, need, until
from tests.told import told
from trainium_cdk import outputs, settings
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import HealthRules

CLUSTER: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("pcs.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), CLUSTER) as running:
        yield running


@pytest.fixture
def backend(slurm: LocalSlurm) -> SlurmBackend:
    env = settings.validate(
        {"pcs": {"queues": [{"name": "trn", "compute_resources": [{"name": "trn", "max_nodes": 2}]}]}}
    )
    exported = outputs.pcs_outputs(
        env, cluster_id="pcs_abc1234567", login_group_id="pcs_def1234567", bucket="trn-bucket"
    )
    cluster = outputs.parse("TrnPcsStack", "us-east-1", {k: v for k, (v, _) in exported.items()})
    assert isinstance(cluster, outputs.PcsCluster)
    return SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))


def script(text: str, nodes: int = 1) -> Script:
    return Script(filename="x.sh", content=text.encode(), nodes=nodes, precompile=False)


def test_a_lost_node(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    job = backend.submit(script("sleep 3600"))
    assert until(lambda: backend.status(job.id).state == "RUNNING")
    node = backend.status(job.id).current.nodes
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=EC2 status check failed"])
    try:
        assert until(lambda: f"{node} is down" in backend.status(job.id).current.reason)
        told("lost node", "PCS", "trn status", backend.status(job.id).current.reason)
    finally:
        slurm.run(["scontrol", "update", f"nodename={node}", "state=resume"])
        backend.cancel(job.id)


def test_a_full_disk(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    with file_system(disk := Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/trn", "8m"):
        slurm.run(["scontrol", "update", "partitionname=trn", "state=DOWN"])
        job = backend.submit(script("true"))
        fill(disk)
        slurm.run(["scontrol", "update", "partitionname=trn", "state=UP"])
        ended = backend.wait(job.id, 600)
    assert ended.state == "FAILED"
    told("full disk", "PCS", "trn status", ended.current.reason)


def test_a_device_error(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    """Slurm ends the node as soon as the job has left it, and may start another one by that name: nobody else does."""
    made = backend.render(script("[ $SLURM_RESTART_COUNT ] || sleep 3600"), "broken")
    [job] = backend.send(dataclasses.replace(made, spec=dataclasses.replace(made.spec, health=HealthRules(every=0.4))))
    assert until(lambda: backend.status(job.id).state == "RUNNING")
    node, number = backend.status(job.id).current.nodes, backend.status(job.id).current.number
    driver = Driver(slurm, tmp_path, node, "replace", "power_down_asap")
    try:
        driver.begins(slurm)
        driver.put(1)
        assert until(lambda: state(slurm, node, "%E").startswith("trn-devices 1"))
        why = next(one.reason for one in backend.nodes() if one.name == node)
        assert why.startswith("has a device error since 20")
        assert until(lambda: state(slurm, node, "%t") in ("idle%", "idle~"), 120)
    finally:
        driver.end()
    slurm.run(["scontrol", "update", f"nodename={node}", "comment="])
    done = begins_again(slurm, number, lambda: backend.status(job.id).state == "COMPLETED")
    assert done, backend.status(job.id)
