"""A lost node, a full disk and a capacity block that is over: each told in one sentence by `trn status` and `trn why`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sandbox.kubernetes.api import Object, path_of
from sandbox.kubernetes.nodes import OWN_STATUS
from tests.jobs.kubernetes.conftest import Running, script
from tests.support import until
from tests.told import told
from trainium_cdk.cdk.eks.scaler.labels import BROKEN
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.client.operations.why_kubernetes import in_cluster
from trainium_cdk.description.catalog.known_errors import explain
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.jobs import BertLarge

MERGE = "application/merge-patch+json"


def why(backend: KubernetesBackend) -> dict[str, set[str]]:
    """What `trn why` says, by its known error."""
    found: dict[str, set[str]] = {}
    for each in in_cluster(backend.api):
        found.setdefault(each.error.name if each.error else "", set()).add(f"{each.where}: {each.text}")
    return found


def known(text: str) -> str:
    error = explain(text)
    return error.name if error else ""


def test_a_node_that_does_not_respond(backend: KubernetesBackend, running: Running) -> None:
    sent, api = backend.submit(script(b"sleep 3600", nodes=1, cache="lost"), "lost-node").id, running.kubernetes.api()
    assert until(lambda: backend.status(sent).state == "RUNNING")
    node = backend.status(sent).stages[-1].nodes
    path = path_of("v1", "Node", node)
    before = api.get(path)["status"]["conditions"]
    lost = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    try:
        patch(api, path, {"metadata": {"annotations": {OWN_STATUS: "true"}}})
        patch(api, f"{path}/status", {"status": {"conditions": [lost]}})
        reason = until(lambda: (now := backend.status(sent).current.reason) and now)
        assert (
            reason
            == f"node {node} not ready: without a change its pods are ended after 5 minutes, and the job starts again"
        )
        assert known(reason) == "node-lost"
        told("lost node", "EKS", "trn status", reason.replace(node, "trn-1"))
        assert (
            f"node {node}: Ready is Unknown: NodeStatusUnknown: Kubelet stopped posting node status."
            in why(backend)["node-lost"]
        )
        full = {
            "type": "DiskPressure",
            "status": "True",
            "reason": "KubeletHasDiskPressure",
            "message": "kubelet has disk pressure",
        }
        patch(api, f"{path}/status", {"status": {"conditions": [{**lost, "status": "True"}, full]}})
        assert any(line.startswith(f"node {node}: DiskPressure") for line in why(backend)["node-disk-full"])
    finally:
        patch(api, f"{path}/status", {"status": {"conditions": before}})
        patch(api, path, {"metadata": {"annotations": {OWN_STATUS: None}}})
    assert until(lambda: not backend.status(sent).current.reason)
    assert backend.cancel(sent).state == "CANCELLED"


def test_a_node_whose_device_is_broken(backend: KubernetesBackend, running: Running) -> None:
    """As the node scaler's function marks it (tests/eks/test_scenes_of_failures.py). Nodes of others are not named."""
    sent, api = backend.submit(script(b"sleep 3600", nodes=1, cache="broken"), "broken").id, running.kubernetes.api()
    assert until(lambda: backend.status(sent).state == "RUNNING")
    node = backend.status(sent).stages[-1].nodes
    group = api.get(path_of("v1", "Node"), labelSelector=f"{GROUP_LABEL}=trn")["items"]
    [other] = {one["metadata"]["name"] for one in group} - {node}

    def mark(name: str, why: str | None) -> None:
        patch(api, path_of("v1", "Node", name), {"metadata": {"annotations": {BROKEN: why}}})

    try:
        mark(other, "another")
        assert backend.status(sent).current.reason == ""
        mark(node, "Discovered HBM Uncorrectable Error")
        now = backend.status(sent)
        why = f"node {node} has a broken device, and gets no other job: Discovered HBM Uncorrectable Error"
        assert (now.state, now.current.reason) == ("RUNNING", why)
    finally:
        mark(node, None)
        mark(other, None)
    assert backend.cancel(sent).state == "CANCELLED"


def test_a_pod_that_its_node_has_ended(backend: KubernetesBackend, running: Running) -> None:
    """As the kubelet ends it when the disk is full; without a further attempt the job has failed with that reason."""
    sent, api = (
        backend.submit(script(b"sleep 3600", nodes=1, cache="full", restarts=0), "full-disk").id,
        running.kubernetes.api(),
    )
    assert until(lambda: backend.status(sent).state == "RUNNING")
    [pod] = backend.seen(sent).pods
    message = "The node was low on resource: ephemeral-storage. Threshold quantity: 53687091200, available: 48Gi. "
    ended = {"phase": "Failed", "reason": "Evicted", "message": message}
    path = path_of("v1", "Pod", pod["metadata"]["name"], "training")
    patch(api, f"{path}/status", {"status": ended})
    done = backend.wait(sent, 600)
    assert done.state == "FAILED"
    assert done.current.reason == f"node {pod['spec']['nodeName']} ended its pod: Evicted: {message.strip()}"
    assert known(done.current.reason) == "node-disk-full"
    told("full disk", "EKS", "trn status", done.current.reason.replace(pod["spec"]["nodeName"], "trn-1"))


def test_warnings_and_jobs_that_wait_are_told(backend: KubernetesBackend, running: Running) -> None:
    api, at = running.kubernetes.api(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "told", "namespace": "training"}, "type": "Warning",
        "reason": "NodeNotReady", "message": "Node is not ready", "lastTimestamp": at,
        "involvedObject": {"kind": "Pod", "name": "run-x-train-0-0", "namespace": "training"},
    }  # fmt: skip
    api.create(event)
    try:
        assert "Pod run-x-train-0-0: NodeNotReady: Node is not ready" in why(backend)["node-lost"]
    finally:
        api.delete(path_of("v1", "Event", "told", "training"))


def patch(api: Any, path: str, body: Object) -> None:
    api.call("PATCH", path, body, kind=MERGE)


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.sweep
def test_pods_that_cannot_be_created(backend: KubernetesBackend, running: Running, prepares: bool) -> None:
    """Here a quota of the namespace; a webhook that does not answer is told in the same way."""
    kubectl = running.kubernetes.kubectl
    assert kubectl("-n", "training", "create", "quota", "none", "--hard=pods=0").returncode == 0
    try:
        job = BertLarge(nodes=1, steps=2) if prepares else script(b"sleep 3600", nodes=1, cache="quota")
        sent = backend.submit(job, f"quota-{prepares}".lower()).id
        assert until(lambda: "exceeded quota" in backend.status(sent).current.reason), backend.status(sent)
        now = backend.status(sent).current
        assert (now.name, now.state) == ("prepare" if prepares else "train", "PENDING")
        assert now.reason.startswith('its pods cannot be created: pods "')
    finally:
        kubectl("-n", "training", "delete", "quota", "none")
    if not prepares:
        assert until(lambda: backend.status(sent).state == "RUNNING")
        assert backend.status(sent).current.reason == ""
    assert backend.cancel(sent).state == "CANCELLED"


@pytest.mark.sweep
def test_a_volume_that_cannot_be_mounted(backend: KubernetesBackend, running: Running) -> None:
    """The pod is as the kubelet leaves it until its volumes are there, and the warning is the kubelet's."""
    sent, api = backend.submit(script(b"sleep 3600", nodes=1, cache="mount"), "no-mount").id, running.kubernetes.api()
    assert until(lambda: backend.status(sent).state == "RUNNING")
    [pod] = backend.seen(sent).pods
    name = pod["metadata"]["name"]
    waits = {"phase": "Pending", "containerStatuses": None, "initContainerStatuses": None}
    patch(api, f"{path_of('v1', 'Pod', name, 'training')}/status", {"status": waits})
    assert until(lambda: backend.status(sent).state == "PENDING"), backend.status(sent)
    message = 'MountVolume.SetUp failed for volume "training-fsx" : rpc error: code = Internal desc = exit status 19'
    about = {"kind": "Pod", "name": name, "namespace": "training", "uid": pod["metadata"]["uid"]}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "mount", "namespace": "training"}, "type": "Warning",
        "reason": "FailedMount", "message": message, "involvedObject": about,
        "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    api.create(event)
    try:
        assert backend.status(sent).current.reason == f"its pods do not start: FailedMount: {message}"
    finally:
        api.delete(path_of("v1", "Event", "mount", "training"))
    assert backend.status(sent).current.reason == "starts"
    assert backend.cancel(sent).state == "CANCELLED"
