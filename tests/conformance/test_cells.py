"""Every kind on every instance type and engine: started up to its program, with the Neuron release of cells.yaml; or refused
before anything is submitted, with the reason."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from conformance import cases
from conformance.launched import Cluster, launched
from tests.support import swept
from trainium_cdk import outputs, settings
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.catalog import Catalog, Stack, evaluate
from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.jobs import AnyJob, JobError

ROOT = Path(__file__).parents[2]
TRN3 = "tests/environments/trn3-catalog.yaml"
"""An environment that adds the type: the catalogue does not have it."""
NODES = {
    "slurm": "pcluster: {{os: {system}, queues: [{{name: q, compute_resources: [{{instance_type: {type}, max_nodes: 4}}]}}]}}\n",
    "pcs": "pcs: {{os: {system}, queues: [{{name: q, compute_resources: [{{instance_type: {type}, max_nodes: 4}}]}}]}}\n",
    "kubernetes": "eks: {{node_groups: [{{instance_type: {type}, max_nodes: 4}}]}}\n",
}
SLURM = ("slurm", "pcs")
SHORT = (("kubernetes", "trn1.32xlarge"), ("kubernetes", "trn2.48xlarge"))
"""Beside those of ParallelCluster, whose jobs are PCS's too."""
REASONS = {
    "bert-large": "bert-large runs on trn1, trn1n, trn2, trn2u, but",
    "finetune": "finetune runs on trn2, trn2u, trn3, but",
    "gpt-6.7b": r"gpt-6\.7b runs on trn1, trn1n, but|tensor_parallel is 8; it must divide .* the 2 NeuronCores of trn1\.2xlarge",
    "torchtitan": "torchtitan runs on trn2, trn2u, trn3, but",
}


ROWS = yaml.safe_load(Path(__file__).with_name("cells.yaml").read_text("utf-8"))
TABLE: dict[str, dict[str, str]] = {row.pop("kind").strip("`"): row for row in ROWS}
"""By kind and instance type the release; empty where it cannot run."""
TYPES = list(TABLE["script"])
CELLS = [(engine, instance) for engine in NODES for instance in TYPES]


@cache
def clusters(engine: str, instance: str) -> list[Cluster]:
    """What can be deployed with this instance type, by the catalogue: first what AWS says nothing against, and the newest release."""
    document = (ROOT / TRN3).read_text("utf-8") if instance == "trn3.48xlarge" else ""
    added = "catalog:" + document.partition("catalog:")[2].partition("  releases:")[0] if document else ""
    known = settings.parse(added).catalog
    family = (known.instance(instance).family,)
    found = []
    for release, one in ((name, one) for name, one in known.releases.items() if not one.only_named):
        for framework in one.frameworks:
            versions = {"release": release, "framework": framework}
            if engine in SLURM:
                stacks = [
                    Stack.slurm(known, family, **versions, system=s) for s in known.parallelcluster.operating_systems
                ]
            else:
                stacks = [Stack.eks(known, family, **versions, ami=a) for a in (*known.amis(known.eks.default), None)]
            for stack in [stack for stack in stacks if evaluate(known, stack)][:1]:
                rank = (evaluate(known, stack).statement is None, numbers(release))
                nodes = NODES[engine].format(system=stack.system, type=instance)
                pins = f"bootstrap: {{neuron_release: {release}, framework: {framework}}}\n"
                found.append((rank, cluster(engine, settings.parse(added + nodes + pins))))
    return [deployed for _, deployed in sorted(found, key=lambda one: one[0], reverse=True)]


def cluster(engine: str, env: settings.Environment) -> Cluster:
    if engine == "slurm":
        exported = outputs.slurm_outputs(env, head_node_id="i-0123456789abcdef0", bucket="trn-bucket")
    elif engine == "pcs":
        exported = outputs.pcs_outputs(env, cluster_id="pcs_0123456789", login_group_id="pcs_abc", bucket="trn-bucket")
    else:
        exported = outputs.eks_outputs(env, bucket="trn-bucket")
    found = outputs.parse("TrnStack", env.region, {key: value for key, (value, _) in exported.items()})
    assert isinstance(found, Cluster)
    return found if engine in SLURM or found.image else found.model_copy(update={"image": cases.IMAGE})


def first(kind: str, engine: str, instance: str) -> tuple[AnyJob, Cluster] | list[str]:
    """The job of the kind, on the first cluster that takes it; or why none does."""
    reasons = []
    for on in clusters(engine, instance):
        job = cases.JOBS[kind].model_copy(update={"nodes": 2 if on.fleets[0].efa else 1})
        try:
            plan(job, on)
        except JobError as e:
            reasons.append(str(e))
        else:
            return job, on
    return reasons


def test_the_table_has_every_kind_and_type() -> None:
    assert TABLE.keys() == kinds().keys()
    assert [*Catalog.load().instances, "trn3.48xlarge"] == TYPES


@pytest.mark.parametrize(
    ("engine", "instance"), swept(CELLS, *(cell for cell in CELLS if cell in SHORT or cell[0] == "slurm"))
)
@pytest.mark.parametrize("kind", TABLE)
def test_cell(kind: str, engine: str, instance: str) -> None:
    expected = TABLE[kind][instance]
    found = first(kind, engine, instance)
    if isinstance(found, list):
        assert expected == ""
        assert any(re.search(REASONS[kind], reason) for reason in found), found
        return
    job, on = found
    assert expected == (on.neuron_release if job.needs_framework else "any")
    files = [value for _, value in job if isinstance(value, str) and value.startswith("/")]
    start = launched(job, on, files=files)
    assert start.command
    if start.launcher:
        options = dict(zip(start.launcher[::2], start.launcher[1::2], strict=True))
        assert (options["--nproc_per_node"], options["--nnodes"]) == (str(on.fleets[0].cores), str(job.nodes))
