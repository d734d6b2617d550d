"""Jobs that claim their devices, on the real API server, scheduler, JobSet and Kueue, submitted by a user who may only edit jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import available, claims
from sandbox.kubernetes.api import path_of
from sandbox.kubernetes.kueue import of_both_forms
from tests.jobs.kubernetes.conftest import Running, script, serving, text
from tests.support import need, until
from trainium_cdk import settings
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts, render, status
from trainium_cdk.client.jobs.kubernetes.objects import Object, objects
from trainium_cdk.client.operations.why_kubernetes import in_cluster

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
    configuration = of_both_forms()
    folder = tmp_path_factory.mktemp("claims")
    with serving(folder, local_aws, "claims-test", settings.parse(FILE), kueue_configuration=configuration) as made:
        claims.install(made.kubernetes.api())
        image = "111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1"  # AWS has none of TorchNeuron, the default on Trn2
        yield made._replace(cluster=made.cluster.model_copy(update={"image": image}))


def part(go: str, name: str, devices: int, **fields: Any) -> Any:
    given = {"nodes": 1, "queue": "debug", "devices": devices, "name": name, "cache": name, **fields}
    return script(WAITS % go.encode() + b'echo "$NPROC_PER_NODE of LNC ${NEURON_LOGICAL_NC_CONFIG:-}"\n', **given)


def state(backend: KubernetesBackend, id: str) -> str:
    return backend.status(id).state


def test_the_template_is_the_jobs_and_goes_with_it(backend: KubernetesBackend) -> None:
    sent = backend.submit(script(b"true", nodes=2), "whole")
    api = backend.api
    job, template = api.get("JobSet", sent.id), api.get("ResourceClaimTemplate", f"{sent.id}-16")
    [owner] = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("JobSet", job["metadata"]["uid"])
    assert backend.submit(script(b"true", nodes=2), "whole").existing
    assert until(lambda: state(backend, sent.id) == "COMPLETED", 120), backend.status(sent.id)
    api.delete("JobSet", sent.id)
    assert not backend.submit(script(b"true", nodes=2), "whole").existing, "at once: what is left of it goes first"
    [owner] = api.get("ResourceClaimTemplate", f"{sent.id}-16")["metadata"]["ownerReferences"]
    assert owner["uid"] == api.get("JobSet", sent.id)["metadata"]["uid"] != job["metadata"]["uid"]
    api.delete("JobSet", sent.id)
    assert until(lambda: api.find("ResourceClaimTemplate", f"{sent.id}-16") is None, 60)
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
    template = backend.api.get("ResourceClaimTemplate", f"{sent.id}-4")
    members = backend.api.list("JobSet", labels=f"trainium-cdk/array={sent.id}")
    uids = {member["metadata"]["uid"] for member in members}
    assert len(uids) == 3
    assert {owner["uid"] for owner in template["metadata"]["ownerReferences"]} == uids
    assert until(lambda: state(backend, sent.id) == "COMPLETED", 120), backend.status(sent.id)
    for workload in backend.api.list("Workload"):
        said = [one for one in workload["status"].get("conditions", []) if one["reason"] == "Inadmissible"]
        assert not said


def explained(backend: KubernetesBackend, where: str) -> set[str]:
    """The known errors that `trn why` names of a job, or of a pod."""
    found = in_cluster(backend.api, backend.devices)
    return {one.error.name for one in found if one.error and where in one.where}


def test_free_devices_that_are_not_connected_wait_in_words(backend: KubernetesBackend, running: Running) -> None:
    """Of 8 free devices, 4 are of each half."""
    jobs = []
    for name in ("left", "ends", "right"):
        jobs.append(backend.submit(part(f"{name}-go", name, 4), "f").id)
        assert until(lambda: state(backend, jobs[-1]) == "RUNNING", 120), backend.list()
    (running.shared / "ends-go").touch()
    assert until(lambda: state(backend, jobs[1]) == "COMPLETED", 120), backend.list()
    eight = backend.submit(part("eight-go", "eight", 8), "f").id
    reason = "cannot allocate all claims"
    assert until(lambda: reason in backend.status(eight).current.reason, 120), backend.status(eight)
    assert until(lambda: "claim-does-not-fit" in explained(backend, eight), 60)
    for go in ("left-go", "right-go", "eight-go"):
        (running.shared / go).touch()
    assert until(lambda: state(backend, eight) == "COMPLETED", 120), backend.list()


def test_what_asks_the_device_plugin_in_a_group_with_claims_is_explained(
    backend: KubernetesBackend, running: Running
) -> None:
    fleets = tuple(one.model_copy(update={"claims": False, "share": False}) for one in running.cluster.fleets)
    theirs = KubernetesBackend(running.cluster.model_copy(update={"fleets": fleets}), lambda: backend.api)
    id = theirs.submit(script(b"true", nodes=1, name="plugin"), "p").id
    assert until(lambda: "plugin-devices" in explained(backend, id), 120), backend.status(id)
    assert f"Insufficient {DEVICE}" in backend.status(id).current.reason


def test_a_claim_that_cannot_be_created_is_in_the_status(backend: KubernetesBackend, running: Running) -> None:
    """The scheduler does not look at such a pod, and tells nothing of it."""
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "claims", "namespace": "training"},
        "spec": {"hard": {f"{claims.DRIVER}.deviceclass.resource.k8s.io/devices": "2"}},
    }  # fmt: skip
    api = running.kubernetes.api()
    api.apply(quota)
    try:
        id = backend.submit(script(b"true", nodes=1, queue="debug", devices=4, name="quota"), "q").id
        told = "its pods do not start: FailedResourceClaimCreation: PodResourceClaim neuron: "
        assert until(lambda: told in backend.status(id).current.reason, 120), backend.status(id)
        assert "exceeded quota: claims" in backend.status(id).current.reason
        assert "claim-not-created" in explained(backend, id)
    finally:
        api.delete(path_of("v1", "ResourceQuota", "claims", "training"))


def broken(devices: Object, change: str) -> Object | None:
    """The specification of a claim that Kueue does not count; None: there is no template."""
    exactly = devices["requests"][0]["exactly"]
    if change == "all":
        exactly["allocationMode"] = "All"
        del exactly["count"]
    elif change == "first":
        devices["requests"][0] = {"name": "neuron", "firstAvailable": [{"name": "one", **exactly}]}
    elif change == "selector":
        exactly["selectors"] = [
            {"cel": {"expression": f'device.attributes["{claims.DRIVER}"].instanceType == "trn9.large"'}}
        ]
    elif change == "class":
        exactly["deviceClassName"] = "efa.networking.k8s.aws"
    return None if change == "none" else devices


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("all", "claim-form"), ("first", "claim-form"), ("selector", "claim-selector"), ("class", "claim-class"), ("none", "claim-template"),
    ],
)  # fmt: skip
def test_what_kueue_does_not_count_is_explained(
    backend: KubernetesBackend, running: Running, change: str, known: str
) -> None:
    """Jobs of other clients, by somebody whom the policy does not bind."""
    name, made = f"theirs-{change}", objects(render(part("x", "x", 4), running.cluster, change), running.cluster)
    [template] = [one for one in made.parts if one["kind"] == "ResourceClaimTemplate"]
    about = {"name": name, "namespace": "training"}
    pod = {**status.train_spec(made.jobs[0]), "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": name}]}
    pod["containers"][0]["resources"]["limits"] = pod["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    api, job = running.kubernetes.api(), {"template": {"spec": pod}, "completions": 1, "parallelism": 1}
    if devices := broken(template["spec"]["spec"]["devices"], change):
        api.apply({**template, "metadata": about, "spec": {"spec": {"devices": devices}}})
    jobs = [{"name": "train", "replicas": 1, "template": {"spec": job}}]
    queued = {**about, "labels": {parts.QUEUE_LABEL: "debug"}}
    api.apply({**made.jobs[0], "metadata": queued, "spec": {"suspend": True, "replicatedJobs": jobs}})
    try:
        assert until(lambda: known in explained(backend, f"job {name}"), 60), in_cluster(backend.api)
        [listed] = [one for one in backend.others() if one.name == name]
        assert "it cannot start as it is written" in listed.reason
    finally:
        api.delete(path_of(parts.JOBSET, "JobSet", name, "training"))
