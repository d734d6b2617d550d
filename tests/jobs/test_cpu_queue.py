"""The queue of nodes without Trainium: jobs are prepared there, and scripts run there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.pcluster.examples import ids_for
from tests.support import need
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.slurm.backend import with_type
from trainium_cdk.client.jobs.status import Node
from trainium_cdk.description.cluster_configuration import render
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import BertLarge, JobError, LocalTransport, Script, SlurmBackend
from trainium_cdk.runner import slurm as runner
from trainium_cdk.runner.head.stages import Known, stage

SCRIPT = b"""#!/bin/bash
hostname=$SLURMD_NODENAME
echo "evaluated on $hostname: rank $NODE_RANK of $NNODES, $NPROC_PER_NODE process"
test -z "${NEURON_RT_EXEC_TIMEOUT:-}"
"""


def evaluation(**fields: Any) -> Script:
    return Script(**{"filename": "evaluate.sh", "content": SCRIPT, "queue": "cpu", **fields})


ENV = settings.validate(
    {"pcluster": {"cpu_queue": {"max_nodes": 1}, "queues": [{"compute_resources": [{"max_nodes": 2}]}]}}
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """The cluster's own configuration: two trn1.32xlarge and one c5.2xlarge."""
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), render(ENV, ids_for(ENV))) as running:
        yield running


def deployed() -> SlurmCluster:
    """The cluster, by way of its stack's outputs."""
    made = outputs.slurm_outputs(ENV, head_node_id="i-0123456789abcdef0", bucket="trn-bucket")
    cluster = outputs.parse("TrnPclusterStack", "us-east-1", {key: value for key, (value, _) in made.items()})
    assert isinstance(cluster, SlurmCluster)
    assert outputs.from_json(cluster.model_dump_json()) == cluster
    return cluster


@pytest.mark.parametrize(
    ("job", "cluster", "message"),
    [
        (BertLarge(queue="cpu"), deployed(), "queue cpu has c5.2xlarge nodes, without Trainium, but bert-large trains on NeuronCores. Use"),
        (evaluation(precompile=True), deployed(), "precompile runs the graphs of Trainium nodes there. Remove --precompile"),
        (evaluation(lnc=2), deployed(), "lnc is 2, a number of NeuronCores. Remove --lnc"),
        (evaluation(nodes=2), deployed(), "at most 1 of c5.2xlarge. Use --nodes 1 or fewer, or raise max_nodes of cpu_queue and deploy"),
        (evaluation(instance_type="trn1.32xlarge"), deployed(), "queue cpu has no trn1.32xlarge; it has c5.2xlarge. Choose"),
        (evaluation(queue="gone"), deployed(), "has no queue 'gone'; it has compute1, cpu. Give one of them as --queue"),
        (evaluation(), make_cluster(fleet()), "it has compute1. Give one of them as --queue, or deploy with `cpu_queue: {}` for nodes without"),
        (evaluation(image="x/y:1"), make_eks(), "On Kubernetes jobs run on Trainium nodes, and are prepared on the system nodes"),
    ],
)  # fmt: skip
def test_what_does_not_run_there_is_refused(job: Any, cluster: Any, message: str) -> None:
    with pytest.raises(JobError) as refused:
        plan(job, cluster)
    assert message in str(refused.value)


def test_a_plan_says_where_it_is_prepared_and_what_that_costs() -> None:
    assert plan(BertLarge(), deployed()).describe()[-1] == (
        "prepare runs on one c5.2xlarge of queue cpu (0.34 USD an hour), unless nothing must be fetched"
    )
    assert (
        plan(BertLarge(), make_cluster(fleet()))
        .describe()[-1]
        .startswith(
            "prepare runs on one trn1.32xlarge of queue compute1 (21.50 USD an hour), as TrnPclusterStack has no queue of CPU nodes"
        )
    )
    made = plan(evaluation(), deployed())
    assert made.describe() == ["1 node of c5.2xlarge in queue cpu, without Trainium"]
    assert (made.needs_neuron, made.constraint, made.stages) == (False, None, ("train",))


def test_a_job_waits_for_a_cpu_node() -> None:
    row = runner.Row(0, "u", "cpu", "1", "7", "", "PENDING", "Resources", "", "", "", "7", "", "a:prepare", "trn:a")
    assert stage("prepare", "7", Known(row=row, cpu=True)).reason == "waits for a CPU node"
    assert stage("train", "7", Known(row=row)).reason == "waits for nodes"


def test_nodes_of_pcs_have_the_name_of_the_queue_alone() -> None:
    one = Node("cpu-1", "cpu", "", "idle+cloud+powered_down")
    assert with_type(one, deployed()).instance_type == "c5.2xlarge"


def test_prepare_runs_there_and_the_training_on_trainium(slurm: LocalSlurm) -> None:
    cluster = deployed()
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
    own = backend.submit(evaluation())
    assert backend.wait(own.id, 300).ok
    status = backend.status(own.id)
    assert (status.queue, status.instance_type, list(own.stages)) == ("cpu", "c5.2xlarge", ["train"])
    log = b"".join(chunk.data for chunk in backend.logs(own.id)).decode()
    assert f"evaluated on {status.stages[0].nodes}: rank 0 of 1, 1 process" in log
    assert "Neuron driver" not in log
    assert {node.instance_type for node in backend.nodes() if node.queue == "cpu"} == {"c5.2xlarge"}
