"""Kueue under the deployed configuration, with our queues: who gets the quota of a node group, whose devices the plug-in gives, or pods claim. No node
is needed for that."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox import processes
from sandbox.kubernetes import LocalKubernetes, claims
from sandbox.kubernetes.api import Api, Object, path_of
from sandbox.kubernetes.kueue import of_both_forms
from tests.eks.scenes import next_second
from tests.support import need_kubernetes
from trainium_cdk import settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.client.jobs.kubernetes import reasons

QUEUE, DEVICE = "kueue.x-k8s.io/queue-name", "aws.amazon.com/neuron"
TEAMS = {
    "node_groups": [{"name": "trn", "max_nodes": 8}],
    "queues": [{"namespace": "speech", "nodes": {"trn": 4}}, {"namespace": "vision", "max_nodes": {"trn": 2}}],
}
ALONE = {"node_groups": [{"name": "trn", "max_nodes": 4}]}


Submit = Callable[..., None]


@pytest.fixture(scope="module", params=["plugin", "claims"])
def form(request: pytest.FixtureRequest) -> str:
    """Who gives the devices: `eks.plugins.devices`."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(form: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKubernetes]:
    need_kubernetes()
    configuration = of_both_forms() if form == "claims" else None
    folder = tmp_path_factory.mktemp("queues")
    with LocalKubernetes.start(folder, volcano=False, kueue_configuration=configuration) as running:
        if form == "claims":
            claims.install(running.api())
        yield running


@pytest.fixture
def api(cluster: LocalKubernetes, form: str, request: pytest.FixtureRequest) -> Iterator[Api]:
    """The API with the queues of an environment (`eks: ...`, the test's parameter)."""
    wanted = Installation.of(settings.validate({"eks": {**request.param, "plugins": {"devices": form}}}))
    client = cluster.api()
    made = [*manifests.namespaces(wanted), *kueue.queues(wanted)]
    made += [whole_node(namespace) for namespace in wanted.namespaces]
    for thing in made:
        client.apply(thing)
    yield client
    for namespace in wanted.namespaces:
        for job in client.get(path_of("jobset.x-k8s.io/v1alpha2", "JobSet", namespace=namespace))["items"]:
            # not Foreground: Kueue 0.18.3 makes what a Workload owns again while that waits for its deletion
            client.delete(_path(job), propagationPolicy="Background")
    assert _until(lambda: not client.get(path_of(kueue.API, "Workload"))["items"])
    for thing in reversed(made):
        if thing["apiVersion"] == kueue.API:
            path = _path(thing)
            client.delete(path)
            assert _until(lambda path=path: not client.exists(path))


@pytest.fixture
def submit(api: Api, form: str) -> Submit:
    """Creates a `jobset` of the form."""
    return lambda *words, **more: api.create(jobset(*words, form=form, **more))


def _path(thing: Object) -> str:
    metadata = thing["metadata"]
    return path_of(thing["apiVersion"], thing["kind"], metadata["name"], metadata.get("namespace"))


def _until(done: Callable[[], bool]) -> bool:
    return processes.wait_until(done, 600, pause=0.1)  # garbage collection of a new cluster may begin after minutes


def whole_node(namespace: str) -> Object:
    """The template of the claims of a node's devices."""
    request = {
        "name": "neuron",
        "exactly": {"deviceClassName": claims.DRIVER, "allocationMode": "ExactCount", "count": 16},
    }
    metadata = {"name": "whole-node", "namespace": namespace}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": claims.API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def jobset(
    name: str, nodes: int, namespace: str = "training", *, priority: str = "", queue: str = "trn", form: str = "plugin"
) -> Object:
    limits = {"vpc.amazonaws.com/efa": "8", "cpu": "100", "memory": "400Gi", "hugepages-2Mi": "5120Mi"}
    container: dict[str, Any] = {"name": "train", "image": "train", "resources": {"limits": limits}}
    train: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if form == "claims":
        container["resources"]["claims"] = [{"name": "neuron"}]
        train["resourceClaims"] = [{"name": "neuron", "resourceClaimTemplateName": "whole-node"}]
    else:
        limits[DEVICE] = "16"
    job = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "template": {"spec": train}}
    labels = {QUEUE: queue} | ({"kueue.x-k8s.io/priority-class": kueue.priority_class(priority)} if priority else {})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"replicatedJobs": [{"name": "train", "template": {"spec": job}}]},
    }


def conditions(client: Api, name: str, namespace: str = "training") -> dict[str, Object]:
    """Of a job's workload, by type. One that has not been first in its queue may have none."""
    return {c["type"]: c for c in workload(client, name, namespace).get("status", {}).get("conditions", [])}


def workload(client: Api, name: str, namespace: str = "training") -> Object:
    """A job's workload, or an empty object."""
    found = client.get(path_of(kueue.API, "Workload", namespace=namespace))["items"]
    return next((w for w in found if w["metadata"]["ownerReferences"][0]["name"] == name), {})


def has(client: Api, name: str, namespace: str = "training") -> bool:
    """Whether the job has its quota."""
    return bool(conditions(client, name, namespace).get("QuotaReserved", {}).get("status") == "True")


def reason(client: Api, name: str, namespace: str = "training") -> str:
    return str(conditions(client, name, namespace).get("QuotaReserved", {}).get("message", ""))


@pytest.mark.parametrize("api", [ALONE], indirect=True)
def test_a_large_job_is_not_overtaken_and_a_priority_goes_first(api: Api, submit: Submit) -> None:
    submit("first", 3)
    assert _until(lambda: has(api, "first"))
    submit("large", 4)
    assert _until(lambda: "insufficient unused quota" in reason(api, "large"))
    next_second()
    submit("small", 1)
    assert _until(lambda: bool(workload(api, "small")))
    submit("urgent", 1, priority="high")
    assert _until(lambda: has(api, "urgent")), "it is before those that wait, and there is room"
    assert not has(api, "large")
    assert not has(api, "small"), "there is no room for a later one, as long as the large one waits"
    submit("more-urgent", 4, priority="high")
    assert _until(lambda: "quota" in reason(api, "more-urgent"))
    assert has(api, "urgent"), "an equal priority is not stopped"
    assert has(api, "first"), "nor is a lower one, if that does not make room"
    api.delete(path_of("jobset.x-k8s.io/v1alpha2", "JobSet", "urgent", "training"), propagationPolicy="Foreground")
    assert _until(lambda: has(api, "more-urgent")), reason(api, "more-urgent")
    assert not has(api, "first"), "the lower priority gives its nodes back, and waits again"
    assert conditions(api, "first")["Evicted"]["reason"] == "Preempted"


@pytest.mark.parametrize("api", [ALONE], indirect=True)
@pytest.mark.sweep
def test_a_pod_set_without_devices_is_bound_to_no_node_and_asks_for_none(api: Api, form: str) -> None:
    """The usual shape of MPI and PyTorch: a launcher that needs no device. With claims Kueue asks for it too, as it cannot see who needs some."""
    body = jobset("launched", 2, form=form)
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "l", "image": "l", "resources": {"requests": {"cpu": "1"}}}],
        }
    }
    body["spec"]["replicatedJobs"].insert(0, {"name": "launcher", "template": {"spec": {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": template}}})  # fmt: skip
    api.create(body)
    requests = path_of("autoscaling.x-k8s.io/v1", "ProvisioningRequest", namespace="training")
    assert _until(lambda: bool(api.get(requests)["items"]))
    [request] = api.get(requests)["items"]
    assert request["spec"]["provisioningClassName"] == kueue.PROVISIONING_CLASS
    *others, pods = request["spec"]["podSets"]
    assert ([one["count"] for one in others], pods["count"]) == ([1] if form == "claims" else [], 2)
    pod = api.get(path_of("v1", "PodTemplate", pods["podTemplateRef"]["name"], "training"))["template"]["spec"]
    assert pod["nodeSelector"] == {"trainium-cdk/node-group": "trn"}
    assert {"key": DEVICE, "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    done = {"lastTransitionTime": "2026-11-24T00:00:00Z", "message": "2 nodes of trn are ready", "status": "True"}
    status = {"conditions": [{**done, "type": kind, "reason": kind} for kind in ("Accepted", "Provisioned")]}
    api.patch_status(_path({**request, "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}), request["metadata"]["uid"], status)  # fmt: skip
    listed = path_of("v1", "Pod", namespace="training")
    assert _until(lambda: len(api.get(listed)["items"]) == 3)
    selectors = {p["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]: p["spec"].get("nodeSelector") for p in api.get(listed)["items"]}  # fmt: skip
    assert selectors == {"launcher": None, "train": {"trainium-cdk/node-group": "trn"}}


@pytest.mark.parametrize("api", [TEAMS], indirect=True)
def test_teams_borrow_and_get_their_own_back(api: Api, submit: Submit) -> None:
    submit("wide", 8)
    assert _until(lambda: has(api, "wide")), "one team may use all that the others do not"
    submit("seen", 3, "vision")
    assert _until(lambda: "quota" in reason(api, "seen", "vision")), "more than its maximum"
    submit("own", 4, "speech")
    assert _until(lambda: has(api, "own", "speech")), reason(api, "own", "speech")
    assert _until(lambda: conditions(api, "wide").get("Evicted", {}).get("reason") == "Preempted")
    assert not has(api, "seen", "vision")


@pytest.mark.parametrize("api", [TEAMS], indirect=True)
def test_a_namespace_uses_its_own_queue_alone(api: Api, submit: Submit) -> None:
    """A user of one team cannot take the share of another by a name."""
    for name in ("trn.speech", "trn.vision"):
        submit(f"thief-{name[4:]}", 1, queue=name)
    submit("honest", 1)
    assert _until(lambda: has(api, "honest"))
    assert not any(has(api, f"thief-{team}") for team in ("speech", "vision"))


RIVALS = {
    "node_groups": [{"name": "trn", "max_nodes": 4}],
    "queues": [
        {"namespace": "speech", "nodes": {"trn": 1}, "max_nodes": {"trn": 3}},
        {"namespace": "vision", "nodes": {"trn": 1}},
    ],
}


def told(client: Api, name: str, namespace: str) -> str:
    """Why `trn` says that a job waits, from the objects that a member of its team may read."""
    inside = client.get(path_of(kueue.API, "Workload", namespace=namespace))["items"]
    local = client.get(path_of(kueue.API, "LocalQueue", namespace=namespace))["items"]
    waits, holds = ([w for w in inside if bool(w.get("status", {}).get("admission")) is has] for has in (False, True))
    waits.sort(key=lambda w: (-int(w["spec"].get("priority") or 0), w["metadata"]["creationTimestamp"]))
    known = reasons.waiting(waits, holds, local, client.get(path_of(kueue.API, "ClusterQueue"))["items"], {"trn": 16})
    one = workload(client, name, namespace)
    return reasons.describe_wait(one, known[one["metadata"]["ownerReferences"][0]["uid"]])


@pytest.mark.parametrize("api", [RIVALS], indirect=True)
@pytest.mark.sweep
def test_a_teams_own_node_is_its_first_jobs_and_a_higher_priority_goes_before_it(api: Api, submit: Submit) -> None:
    """docs/guides/several-users.md: a small job does not overtake a large one of its team. It would otherwise never get its nodes."""
    submit("wide", 3, "vision")
    assert _until(lambda: has(api, "wide", "vision")), "vision borrows two"
    next_second()
    submit("large", 3, "speech")
    assert _until(lambda: "more needed" in reason(api, "large", "speech"))
    next_second()
    submit("small", 1, "speech")
    assert _until(lambda: bool(workload(api, "small", "speech")))
    large = "it lacks 2 nodes of trn"
    assert _until(
        lambda: (
            told(api, "large", "speech") == f"position 1 in its queue: {large}; nodes of trn in use: namespace vision 3"
        )
    ), told(api, "large", "speech")
    assert (
        told(api, "small", "speech")
        == f"position 2 in its queue, behind large: {large}; nodes of trn in use: namespace vision 3"
    )
    assert not has(api, "small", "speech"), "although speech has a node of its own, which is idle"
    submit("urgent", 1, "speech", priority="high")
    assert _until(lambda: has(api, "urgent", "speech")), reason(api, "urgent", "speech")
    submit("own", 1)
    submit("owned", 1)
    assert _until(lambda: conditions(api, "wide", "vision").get("Evicted", {}).get("reason") == "Preempted")
    assert _until(lambda: has(api, "own") and has(api, "owned"))
    assert _until(lambda: "it lacks" in told(api, "wide", "vision")), (
        "what it lacks now is not hidden by what took its nodes"
    )
    assert told(api, "wide", "vision").endswith("; its nodes went to namespace training, whose own they are")
    assert _until(lambda: "namespace speech 1" in told(api, "wide", "vision")), told(api, "wide", "vision")


@pytest.mark.parametrize("api", [ALONE], indirect=True)
@pytest.mark.sweep
def test_who_took_a_jobs_nodes_by_its_priority_is_named(api: Api, submit: Submit) -> None:
    submit("first", 4)
    assert _until(lambda: has(api, "first"))
    submit("urgent", 3, priority="high")
    assert _until(lambda: has(api, "urgent"))
    expected = "position 1 in its queue: it lacks 3 nodes of trn; nodes of trn in use: urgent 3; its nodes went to urgent, which has a higher priority"
    assert _until(lambda: told(api, "first", "training") == expected), told(api, "first", "training")


@pytest.mark.parametrize("form", ["claims"], indirect=True, scope="module")
@pytest.mark.parametrize("api", [TEAMS], indirect=True)
def test_jobs_of_both_forms_have_one_quota(api: Api) -> None:
    """In words too, and when a team takes its own back."""
    for name, nodes, form in (("asks", 5, "plugin"), ("claims", 2, "claims")):
        api.create(jobset(name, nodes, form=form))
        assert _until(functools.partial(has, api, name)), reason(api, name)
    api.create(jobset("late", 2))
    expected = "position 1 in its queue: it lacks 1 node of trn; nodes of trn in use: asks 5, claims 2"
    assert _until(lambda: told(api, "late", "training") == expected), told(api, "late", "training")
    api.create(jobset("own", 4, "speech", form="claims"))
    assert _until(lambda: has(api, "own", "speech")), reason(api, "own", "speech")
    assert conditions(api, "asks")["Evicted"]["reason"] == "Preempted"
    assert has(api, "claims"), "its nodes are not needed"
