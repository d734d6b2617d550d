"""Jobs that claim their devices, on the real API server, scheduler, JobSet and Kueue, submitted by a user who may only edit jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import available, claims
from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script, serving, text
from tests.support import need, until
from trainium_cdk import settings
from trainium_cdk.eks import kueue
from trainium_cdk.jobs.kubernetes import KubernetesBackend, kubernetes_api

FILE = """
eks:
  plugins: {devices: claims}
  node_groups:
    - {name: trn, instance_type: trn2.48xlarge, max_nodes: 2}
    - {name: debug, instance_type: trn2.48xlarge, max_nodes: 1, share: true}
"""
DEVICE = "aws.amazon.com/neuron"
WAITS = b"until [ -e /efs/%s ]; do sleep 0.1; done\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[Running]:
    """Two nodes for whole jobs, and one that jobs share."""
    need(available() is None, str(available()))
    configuration = kueue.configuration({DEVICE: claims.DRIVER})
    folder = tmp_path_factory.mktemp("claims")
    with serving(folder, local_aws, "claims-test", settings.parse(FILE), kueue_configuration=configuration) as made:
        claims.install(made.kubernetes.api())
        image = "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1"  # AWS has none of TorchNeuron, the default on Trn2
        yield made._replace(cluster=made.cluster.model_copy(update={"image": image}))


@pytest.fixture
def backend(running: Running) -> Iterator[KubernetesBackend]:
    made = KubernetesBackend(running.cluster, lambda: kubernetes_api(running.cluster))
    yield made
    for job in made.list():
        if not job.done:
            made.cancel(job.id)
    made.api.close()


def part(go: str, name: str, devices: int, **fields: Any) -> Any:
    given = {"nodes": 1, "queue": "debug", "devices": devices, "name": name, "cache": name, **fields}
    return script(WAITS % go.encode() + b'echo "$NPROC_PER_NODE of LNC ${NEURON_LOGICAL_NC_CONFIG:-}"\n', **given)


def state(backend: KubernetesBackend, id: str) -> str:
    return backend.status(id).state


def test_the_template_is_the_jobs_and_goes_with_it(backend: KubernetesBackend) -> None:
    sent = backend.submit(script(b"true", nodes=2), "whole")
    api = backend.api
    job, template = api.get("JobSet", sent.id), api.get("ResourceClaimTemplate", sent.id)
    [owner] = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("JobSet", job["metadata"]["uid"])
    assert backend.submit(script(b"true", nodes=2), "whole").existing
    assert until(lambda: state(backend, sent.id) == "COMPLETED", 120), backend.status(sent.id)
    api.delete("JobSet", sent.id)
    assert not backend.submit(script(b"true", nodes=2), "whole").existing, "at once: what is left of it goes first"
    [owner] = api.get("ResourceClaimTemplate", sent.id)["metadata"]["ownerReferences"]
    assert owner["uid"] == api.get("JobSet", sent.id)["metadata"]["uid"] != job["metadata"]["uid"]
    api.delete("JobSet", sent.id)
    assert until(lambda: api.find("ResourceClaimTemplate", sent.id) is None, 60)
    assert until(lambda: not api.list("ResourceClaim"), 60)


def test_jobs_share_a_node_and_nodes_show_who_has_what(backend: KubernetesBackend, running: Running) -> None:
    jobs = {
        name: backend.submit(part("share-go", name, count, **fields), "s").id
        for name, count, fields in (("eight", 8, {"lnc": 1}), ("four", 4, {}), ("one", 1, {}), ("last", 4, {}))
    }
    first = [jobs[name] for name in ("eight", "four", "one")]
    assert until(lambda: {state(backend, id) for id in first} == {"RUNNING"}, 120), backend.list()
    workloads = {w["metadata"]["ownerReferences"][0]["name"]: w for w in backend.api.list("Workload")}
    [usage] = workloads[jobs["eight"]]["status"]["admission"]["podSetAssignments"]
    assert usage["resourceUsage"][DEVICE] == "8", "Kueue counts claims in the quota of the device plug-in's resource"
    assert until(lambda: "it lacks" in backend.status(jobs["last"]).current.reason, 60)
    reason = backend.status(jobs["last"]).current.reason
    assert "it lacks 1 device of debug (a node has 16); devices of debug in use: " in reason
    [node] = [one for one in backend.nodes() if one.queue == "debug"]
    assert (
        node.job
        == f"devices in use: {', '.join(sorted(f'{id}:train {n}' for id, n in zip(first, (8, 4, 1), strict=True)))}"
    )
    (running.shared / "share-go").touch()
    assert until(lambda: {state(backend, id) for id in jobs.values()} == {"COMPLETED"}, 120), backend.list()
    assert "64 of LNC 1" in text(backend.logs(jobs["eight"]))
    assert "16 of LNC \n" in text(backend.logs(jobs["four"]))


def test_members_of_an_array_share_a_template_that_is_there_before_they_are_in_a_queue(
    backend: KubernetesBackend,
) -> None:
    sent = backend.submit(script(b"true", nodes=1, queue="debug", devices=4, array="0-2", name="some"), "a")
    template = backend.api.get("ResourceClaimTemplate", sent.id)
    members = backend.api.list("JobSet", labels=f"trainium-cdk/array={sent.id}")
    uids = {member["metadata"]["uid"] for member in members}
    assert len(uids) == 3
    assert {owner["uid"] for owner in template["metadata"]["ownerReferences"]} == uids
    assert until(lambda: state(backend, sent.id) == "COMPLETED", 120), backend.status(sent.id)
    for workload in backend.api.list("Workload"):
        said = [one for one in workload["status"].get("conditions", []) if one["reason"] == "Inadmissible"]
        assert not said


def test_a_node_of_a_user_who_asks_the_plugin_gets_no_device(running: Running) -> None:
    """No node of the group announces what the device plug-in would."""
    for node in running.kubernetes.api().get(path_of("v1", "Node"))["items"]:
        assert DEVICE not in node["status"]["allocatable"]
