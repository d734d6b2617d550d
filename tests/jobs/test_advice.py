"""What a refused job says to deploy with works: the environment is accepted, and the job runs there."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from conformance import cases
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk import settings
from trainium_cdk.client.jobs import packages
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description import checks, engines
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.description.outputs.read import described_cluster
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import Script
from trainium_cdk.problems import errors

IMAGE = "111122223333.dkr.ecr.us-east-2.amazonaws.com/trn:src-0123456789abcdef"
_SETTINGS = re.compile(r"`([a-z]+: \{[^`]*\})`")
NODES = {
    "slurm": "pcluster: {{queues: [{{compute_resources: [{{instance_type: {0}, max_nodes: 4}}]}}]}}",
    "eks": "eks: {{node_groups: [{{name: trn, instance_type: {0}, max_nodes: 4}}]}}",
}


def deployable() -> Iterator[tuple[str, dict[str, Any]]]:
    """Environments that can be deployed, whatever their versions."""
    mixes = itertools.product(
        NODES,
        ("trn1.32xlarge", "trn2.48xlarge"),
        (None, "torch-xla", "torch-native", "none"),
        (None, "2.26.1", "2.28.1", "2.30.0", "2.33.0"),
        ("", "ubuntu2204", "20260625"),
    )
    for engine, type, framework, release, more in mixes:
        document = {"region": "us-east-2", **yaml.safe_load(NODES[engine].format(type))}
        given = {"framework": framework, "neuron_release": release}
        document["bootstrap"] = {k: v for k, v in given.items() if v}
        if more:
            if more.isdigit() != (engine == "eks"):
                continue
            document[engines.get(engine).section]["ami_release" if engine == "eks" else "os"] = more
        env = settings.parse(json.dumps(document))
        if not errors(checks.check(env, engine)):
            yield engine, document


def on(engine: str, document: dict[str, Any]) -> Cluster:
    return described_cluster(settings.parse(json.dumps(document)), engine, engines.get(engine).stack)


def test_what_a_refused_job_says_to_deploy_with_works() -> None:
    followed = 0
    for engine, document in deployable():
        cluster = on(engine, document)
        for name, job in cases.JOBS.items():
            image = {} if engine == "slurm" else {"image": cluster.image or IMAGE}  # type: ignore[attr-defined]
            made = job.model_copy(update={"nodes": 1, **image})
            try:
                plan(made, cluster)
                continue
            except JobError as e:
                message = str(e)
            if "Deploy with `" not in message:
                continue
            after = json.loads(json.dumps(document))
            for text in _SETTINGS.findall(message.partition("Deploy with ")[2]):
                for section, values in yaml.safe_load(text).items():
                    after.setdefault(section, {}).update(values)
            if "without eks.ami_release" in message:
                after["eks"].pop("ami_release", None)
            env = settings.parse(json.dumps(after))
            found = [p for p in checks.check(env, engine) if p.rule == "incompatible-versions"]
            assert "(AWS: " in message or not found, (document, name, message)
            assert not errors(checks.check(env, engine)), (document, name, message)
            cluster_after = on(engine, after)
            if engine == "eks":
                made = made.model_copy(update={"image": getattr(cluster_after, "image", "") or IMAGE})
            plan(made, cluster_after)
            followed += 1
    assert followed > 90


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((fleet("trn1.2xlarge"),), "Use --nodes 1, or a queue of an instance type with EFA, for example trn1.32xlarge"),
        ((fleet("trn1.2xlarge"), fleet(queue="large")), "Use --nodes 1, or --queue large"),
        ((fleet("trn2.48xlarge", efa=0),), "Use --nodes 1, or deploy its nodes without `efa: off`"),
    ],
)
def test_what_has_efa(nodes: tuple[Any, ...], words: str) -> None:
    with pytest.raises(JobError, match=f"{re.escape(words)}$"):
        plan(Script(filename="a.sh", content=b"true", nodes=2, queue=nodes[0].queue), make_cluster(*nodes))


def test_no_settings_for_nodes_of_two_kinds() -> None:
    both = make_cluster(fleet("trn1.32xlarge"), fleet("trn2.48xlarge", queue="second"))
    assert packages.how_to_deploy(cases.JOBS["finetune"], both) == (
        "No Neuron release supports it together with the other instance types. Describe trn2 nodes in their own environment"
    )
