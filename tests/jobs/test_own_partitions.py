"""Partitions of your own, in slurm.conf, over the nodes of queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm, available
from tests.pcluster.examples import ids_for
from tests.support import need
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs.plan import hour_usd, plan
from trainium_cdk.client.jobs.report.run import price
from trainium_cdk.client.jobs.slurm.backend import with_type
from trainium_cdk.client.jobs.status import Node
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks import check
from trainium_cdk.description.cluster_configuration import render
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import BertLarge, JobError, LocalTransport, Script, SlurmBackend

ENV = settings.parse("""
region: us-east-1
pcluster:
  cpu_queue: {max_nodes: 1}
  queues:
    - name: compute1
      compute_resources: [{name: trn, instance_type: trn1.32xlarge, min_nodes: 1, max_nodes: 3}]
    - name: spare
      capacity_type: spot
      compute_resources: [{name: trn, instance_type: trn1.32xlarge, max_nodes: 2}]
    - name: dev
      compute_resources: [{name: trn, instance_type: trn1.2xlarge, max_nodes: 1}]
  slurm_settings:
    - {PartitionName: urgent, Nodes: 'compute1-st-trn-1,compute1-dy-trn-[1-2]', PriorityTier: 10}
    - {PartitionName: all, Nodes: ALL}
    - {NodeSet: two, Nodes: compute1-dy-trn-2}
    - {NodeSet: small, Feature: trn1.2xlarge}
    - {PartitionName: mixed, nodes: 'two,small,spare_nodes'}
    - {PartitionName: prep, Nodes: cpu_nodes}
    - {PartitionName: empty, Nodes: cpu_nodes, State: DOWN}
  overrides: {Scheduling: {SlurmSettings: {CustomSlurmSettings: [{PartitionName: late, Nodes: dev-dy-trn-1}]}}}
""")


def deployed() -> SlurmCluster:
    made = outputs.slurm_outputs(ENV, head_node_id="i-0123456789abcdef0", bucket="trn-bucket")
    cluster = outputs.parse("TrnPclusterStack", "us-east-1", {key: value for key, (value, _) in made.items()})
    assert isinstance(cluster, SlurmCluster)
    return cluster


def script(**fields: Any) -> Script:
    return Script(**{"filename": "run.sh", "content": b"#!/bin/bash\necho on $SLURMD_NODENAME\n", **fields})


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), render(ENV, ids_for(ENV))) as running:
        yield running


def test_each_has_the_nodes_of_its_line() -> None:
    assert not [problem for problem in check(ENV) if problem.level == "error"]
    found: dict[str, list[tuple[str, str, int]]] = {}
    for one in deployed().every_fleet:
        if one.home:
            found.setdefault(one.queue, []).append((one.home, one.instance_type, one.nodes))
    cpu = ("cpu", "c5.2xlarge", 1)
    every = [("compute1", "trn1.32xlarge", 3), ("spare", "trn1.32xlarge", 2), ("dev", "trn1.2xlarge", 1)]
    assert found == {
        "urgent": every[:1],
        "all": [*every, cpu],
        "mixed": [("compute1", "trn1.32xlarge", 1), *every[1:]],
        "prep": [cpu],
        "empty": [cpu],
        "late": every[2:],
    }
    assert deployed().queue()[0].queue == "compute1", "the first queue is still where jobs go"


@pytest.mark.parametrize(
    ("job", "instance_type", "constraint", "usd"),
    [
        (script(queue="urgent", nodes=3), "trn1.32xlarge", None, 64.5),
        (script(queue="all"), "trn1.32xlarge", "trn1.32xlarge", 21.5),
        (script(queue="all", instance_type="trn1.2xlarge"), "trn1.2xlarge", "trn1.2xlarge", 1.34375),
        (script(queue="prep"), "c5.2xlarge", None, 0.34),
        (script(queue="all", instance_type="c5.2xlarge"), "c5.2xlarge", "cpu", 0.34),
    ],
)  # fmt: skip
def test_a_job_there_has_the_type_and_price_of_their_nodes(
    job: Any, instance_type: str, constraint: str | None, usd: float
) -> None:
    made = plan(job, deployed())
    assert (made.fleet.queue, made.fleet.instance_type, made.constraint) == (job.queue, instance_type, constraint)
    assert hour_usd(made, Catalog.load()) == pytest.approx(usd)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (script(queue="urgent", nodes=4), "nodes is 4, but queue urgent has at most 3 of trn1.32xlarge"),
        (script(queue="all", nodes=3), "queue all has trn of compute1 and of spare, which Slurm cannot tell apart"),
        (BertLarge(queue="prep"), "queue prep has c5.2xlarge nodes, without Trainium, but bert-large trains"),
        (script(queue="gone"), "it has compute1, spare, dev, urgent, all, mixed, prep, empty, late, cpu"),
    ],
)
def test_what_cannot_run_there_is_refused(job: Any, message: str) -> None:
    with pytest.raises(JobError) as refused:
        plan(job, deployed())
    assert message in str(refused.value)


def test_an_advice_works() -> None:
    """Use --queue compute1."""
    assert plan(script(queue="compute1", nodes=3), deployed()).constraint is None


def test_jobs_run_there_and_nodes_stay_at_home(slurm: LocalSlurm) -> None:
    cluster = deployed()
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))
    for queue, home, kind in (("urgent", "compute1", "trn1.32xlarge"), ("late", "dev", "trn1.2xlarge"), ("prep", "cpu", "c5.2xlarge")):  # fmt: skip
        sent = backend.submit(script(queue=queue))
        status = backend.wait(sent.id, 120)
        assert status.ok, status
        assert (status.queue, status.instance_type) == (queue, kind)
        assert status.stages[-1].nodes.startswith(f"{home}-")
        assert price(status, cluster, Catalog.load()).hour == Catalog.load().price(kind, "us-east-1")
    nodes = {node.name: (node.queue, node.instance_type) for node in backend.nodes()}
    assert nodes["compute1-dy-trn-2"] == ("compute1", "trn1.32xlarge")
    assert {queue for queue, _ in nodes.values()} == {"compute1", "spare", "dev", "cpu"}


def test_a_node_that_no_queue_has_keeps_slurms_word() -> None:
    assert with_type(Node("own-1", "all", "", "idle"), deployed()).queue == "all"
