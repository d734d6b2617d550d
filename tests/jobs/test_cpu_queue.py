"""Jobs are prepared on nodes without Trainium, where a cluster has a queue of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm, available
from tests.pcluster.examples import ids_for
from tests.support import need
from trainium_cdk import outputs, settings
from trainium_cdk.cluster_configuration.config import render
from trainium_cdk.jobs import BertLarge, LocalTransport, SlurmBackend
from trainium_cdk.outputs import SlurmCluster

ENV = settings.validate(
    {"pcluster": {"cpu_queue": {"max_nodes": 1}, "queues": [{"compute_resources": [{"max_nodes": 2}]}]}}
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """The cluster's own configuration: two trn1.32xlarge and one c5.4xlarge."""
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), render(ENV, ids_for(ENV))) as running:
        yield running


def test_prepare_runs_there_and_the_training_on_trainium(slurm: LocalSlurm) -> None:
    made = outputs.slurm_outputs(ENV, head_node_id="i-0123456789abcdef0", bucket="trn-bucket")
    cluster = outputs.parse("TrnPclusterStack", "us-east-1", {key: value for key, (value, _) in made.items()})
    assert isinstance(cluster, SlurmCluster)
    shards = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/shards"
    shards.mkdir(parents=True)
    for i in range(256):
        (shards / f"part_training_{i}.hdf5").write_bytes(os.urandom(512))
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))
    jobs = [
        backend.submit(BertLarge(run_steps=1, data="/efs/shards", precompile=False, name=name)) for name in ("a", "b")
    ]
    for job in jobs:
        ended = backend.wait(job.id, 600)
        assert ended.ok, ended
        assert [s.nodes.partition("-")[0] for s in ended.stages] == ["cpu", "compute1"]
