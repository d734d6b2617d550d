"""Jobs of others (a JobSet, a TrainJob of the real Kubeflow Trainer) whose pods request devices or claim them, in node groups of both forms: they run, or
`trn list` has the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, claims
from sandbox.kubernetes.api import Object, path_of
from sandbox.kubernetes.kueue import of_both_forms
from tests.eks.conftest import client_of, started
from tests.eks.scenes import NAMESPACE, Scene, job, jobset, pod, thing
from tests.eks.test_queues import whole_node
from tests.eks.test_without_pods import client, listed
from tests.support import until
from trainium_cdk import settings
from trainium_cdk.cdk.eks.installation import Installation

NAME, TRAINER, JOBSET = "forms", "trainer.kubeflow.org/v1alpha1", "jobset.x-k8s.io/v1alpha2"
GROUP = {"instance_type": "trn1.32xlarge", "max_nodes": 1}
FILE = {"node_groups": [{**GROUP, "name": "plugin"}, {**GROUP, "name": "claims", "devices": "claims"}]}
INSTALLED = Installation.of(settings.validate({"eks": FILE}))
WHY = "no node group has nodes with the labels and resources of these pods"


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    how: dict[str, Any] = {"trainer": True, "kueue_configuration": of_both_forms()}
    with started(tmp_path_factory.mktemp("forms"), local_aws, NAME, INSTALLED, **how) as running:
        claims.install(running.api())
        yield running


@pytest.fixture(scope="module")
def session(kubernetes: LocalKubernetes, local_aws: LocalAws) -> Iterator[boto3.Session]:
    with client_of(local_aws, NAME) as made:
        yield made


@pytest.fixture
def scene(kubernetes: LocalKubernetes, local_aws: LocalAws, session: boto3.Session, group: str) -> Iterator[Scene]:
    """Of the test's node group. The function knows both groups."""
    made = {f.queue: Scene(f.queue, 1, kubernetes, local_aws, session, fleet=f) for f in INSTALLED.fleets}
    both = tuple(each for one in made.values() for each in one.settings.groups)
    found = made[group]
    found.settings = dataclasses.replace(found.settings, groups=both)
    yield found
    for api, kind in (
        (TRAINER, "TrainJob"),
        (JOBSET, "JobSet"),
    ):  # with Foreground a TrainJob stays for minutes
        every = path_of(api, kind, namespace=NAMESPACE)
        for each in found.api.get(every)["items"]:
            found.api.delete(f"{every}/{each['metadata']['name']}", propagationPolicy="Background")
    for one in (found, *(other for name, other in made.items() if name != group)):
        one.close()


def pods_of(form: str) -> Object:
    """A node's devices in a form."""
    if form == "plugin":
        return pod(16)
    template = pod(0, resourceClaims=[{"name": "neuron", "resourceClaimTemplateName": "whole-node"}])
    template["spec"]["containers"][0]["resources"] = {"claims": [{"name": "neuron"}]}
    return template


def submit(scene: Scene, kind: str, form: str) -> str:
    """Returns its name."""
    name, template = f"{kind}-of-{form}".lower(), pods_of(form)
    scene.create(whole_node(NAMESPACE))
    if kind == "JobSet":
        scene.create(jobset(name, {"train": job(1, template)}, queue=scene.queue))
        return name
    template["spec"]["containers"][0]["name"] = "node"
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    part = {"name": "node", "template": {"metadata": step, "spec": {"template": template}}}
    runtime = {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [part]}}}
    scene.create(thing(TRAINER, "TrainingRuntime", "trn", {"trainer.kubeflow.org/framework": "torch"}, spec=runtime))
    refers = {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "trn"}}
    trained = {**refers, "trainer": {"numNodes": 1, "command": ["true"]}}
    labels = {"kueue.x-k8s.io/queue-name": scene.queue}
    scene.create(thing(TRAINER, "TrainJob", name, labels, spec=trained))
    return name


@pytest.mark.parametrize("group", ["plugin", "claims"])
@pytest.mark.parametrize("form", ["plugin", "claims"])
@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_it_runs_or_has_a_reason(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    form: str,
    group: str,
) -> None:
    name = submit(scene, kind, form)
    assert until(lambda: scene.workload(name))
    if form == group:
        [node] = scene.runs(name, 1)
        assert node in scene.nodes
        assert f"not of trn: {kind.lower()}" in listed(client(scene), monkeypatch, capsys)[name]
        return
    scene.asks(name)
    scene.minute()
    assert until(lambda: WHY in listed(client(scene), monkeypatch, capsys)[name]), scene.workload(name)
    assert (scene.pods(name), scene.desired) == ([], 0)
