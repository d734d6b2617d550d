"""What `trn status` tells of a job whose pods are not created, or do not start: from Kubernetes' warnings, within a minute. The pods and
events have the form in which the kubelet and the controllers write them. With a real API server: tests/jobs/kubernetes/test_lost.py."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainium_cdk.client.jobs.kubernetes import look, status
from trainium_cdk.client.jobs.kubernetes.parts import DESCRIPTION, QUEUE_LABEL, TASK_LABEL, TRAIN
from trainium_cdk.client.operations import why_kubernetes
from trainium_cdk.errors import ApiError

WAITS = {"state": {"waiting": {"reason": "PodInitializing"}}}
JOINED = "(combined from similar events): "
"""What client-go writes before the tenth event of one reason within ten minutes."""
MOUNT = 'MountVolume.SetUp failed for volume "training-fsx" : rpc error: code = Internal desc = mount failed: exit status 19'
SANDBOX = (
    'Failed to create pod sandbox: plugin type="aws-cni" failed (add): failed to assign an IP address to container'
)
ATTACH = 'AttachVolume.Attach failed for volume "data" : rpc error: code = DeadlineExceeded'
WEBHOOK = 'failed calling webhook "mpod.kb.io": no endpoints available for service "kueue-webhook-service"'


def pod(**changes: Any) -> dict[str, Any]:
    state = {
        "phase": "Pending",
        "initContainerStatuses": [{"name": "folder", **WAITS}],
        "containerStatuses": [{"name": TRAIN, **WAITS}],
    }
    return {
        "metadata": {"name": "run-train-0-0-abcde", "uid": "p", "labels": {TASK_LABEL: TRAIN}},
        "spec": {"nodeName": "n"}, "status": {**state, **changes},
    }  # fmt: skip


NOW = dt.datetime.now(dt.UTC)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of the tables are made when this file is loaded, and a test may run much later."""
    monkeypatch.setattr(look, "time", SimpleNamespace(time=NOW.timestamp))


def ago(seconds: float) -> str:
    return f"{NOW - dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def event(
    reason: str, message: str, kind: str = "Pod", name: str = "run-train-0-0-abcde", uid: str = "p", **times: Any
) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "uid": uid}
    return {"reason": reason, "message": message, "involvedObject": about, **(times or {"lastTimestamp": ago(5)})}


def told(pods: list[dict[str, Any]], *events: dict[str, Any], suspend: bool = False) -> str:
    annotations = {DESCRIPTION: json.dumps({"nodes": 1, "stages": [TRAIN]})}
    job = {
        "metadata": {"name": "run", "labels": {QUEUE_LABEL: "trn"}, "annotations": annotations},
        "spec": {"suspend": suspend},
        "status": {},
    }
    asked: list[Any] = []

    def listed(kind: str, **how: str) -> Any:
        asked.append((kind, how))
        return list(events)

    api = cast("Any", SimpleNamespace(list=listed))
    found = status.status(look.warned(api, status.JobObjects(job, pods)))
    assert asked in ([], [("Event", {"fields": "type=Warning"})])
    return found.current.reason


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([event("FailedMount", MOUNT)], f"its pods do not start: FailedMount: {MOUNT}"),
        ([event("FailedAttachVolume", ATTACH)], f"its pods do not start: FailedAttachVolume: {ATTACH}"),
        ([event("FailedCreatePodSandBox", SANDBOX)], f"its pods do not start: FailedCreatePodSandBox: {SANDBOX}"),
        ([event("FailedMount", MOUNT, lastTimestamp=None, eventTime=ago(30))], f"its pods do not start: FailedMount: {MOUNT}"),
        ([event("FailedMount", MOUNT, eventTime=ago(9000), series={"lastObservedTime": ago(30)})], f"its pods do not start: FailedMount: {MOUNT}"),
        ([event("FailedMount", "old", lastTimestamp=ago(90)), event("FailedMount", MOUNT)], f"its pods do not start: FailedMount: {MOUNT}"),
        ([event("FailedMount", JOINED + MOUNT)], f"its pods do not start: FailedMount: {MOUNT}"),
        ([event("FailedMount", MOUNT, lastTimestamp=ago(2000))], "starts"),
        ([event("FailedMount", MOUNT, uid="of-another-pod")], "starts"),
        ([], "starts"),
    ],
)  # fmt: skip
def test_what_keeps_a_pod_from_starting(events: list[dict[str, Any]], reason: str) -> None:
    assert told([pod()], *events) == reason
    assert told([pod(initContainerStatuses=[], containerStatuses=[])], *events) == reason, (
        "before the kubelet has reported"
    )


@pytest.mark.parametrize(
    "why",
    ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "InvalidImageName", "CreateContainerError"],
)
def test_what_a_container_says_itself_comes_first(why: str) -> None:
    state = [{"name": "folder", "state": {"waiting": {"reason": why, "message": "of the container"}}}]
    assert told([pod(initContainerStatuses=state)], event("Failed", "of the event")) == f"{why}: of the container"


def test_a_pod_without_a_node_says_what_the_scheduler_says() -> None:
    waits = pod(
        conditions=[
            {"type": "PodScheduled", "status": "False", "message": "0/4 nodes are available: 4 Insufficient cpu."}
        ]
    )
    del waits["spec"]["nodeName"]
    assert (
        told([waits], event("FailedScheduling", "old"))
        == "waits for nodes: 0/4 nodes are available: 4 Insufficient cpu."
    )


@pytest.mark.parametrize(("kind", "name"), [("Job", "run-train-0"), ("JobSet", "run")])
def test_pods_that_are_refused(kind: str, name: str) -> None:
    refused = event("FailedCreate", f"Error creating: {WEBHOOK}", kind, name, "j")
    assert told([], refused) == f"its pods cannot be created: {WEBHOOK}"
    joined = event("FailedCreate", f"{JOINED}Error creating: {WEBHOOK}", kind, name, "j")
    assert told([], joined) == f"its pods cannot be created: {WEBHOOK}"
    assert told([], event("FailedCreate", WEBHOOK, kind, "of-another", "j")) == "starts"
    assert told([], refused, suspend=True) == "waits in its queue"


def test_a_pod_that_has_run_is_not_asked_about() -> None:
    began = [{"name": "folder", "state": {"terminated": {"exitCode": 0}}}]
    assert told([pod(initContainerStatuses=began)], event("FailedMount", MOUNT)) == "starts"


def test_a_caller_who_may_not_read_events_is_told_the_rest() -> None:
    def listed(*_: str, **__: str) -> Any:
        raise ApiError(403, "Forbidden", "no")

    annotations = {DESCRIPTION: json.dumps({"nodes": 1, "stages": [TRAIN]})}
    seen = status.JobObjects(
        {
            "metadata": {"name": "run", "labels": {QUEUE_LABEL: "trn"}, "annotations": annotations},
            "spec": {},
            "status": {},
        },
        [pod()],
    )
    assert look.warned(cast("Any", SimpleNamespace(list=listed)), seen) == seen


def test_trn_why_names_joined_events_once() -> None:
    events = [event("FailedMount", MOUNT, lastTimestamp=ago(90)), event("FailedMount", JOINED + MOUNT)]
    api = cast("Any", SimpleNamespace(list=lambda kind, **_: events if kind == "Event" else []))
    [found] = why_kubernetes.in_cluster(api)
    assert found.text == f"FailedMount: {MOUNT}"


def test_a_pod_whose_claim_of_devices_is_not_created() -> None:
    """The scheduler does not look at it, so that it has no condition, and is on no node."""
    text = 'PodResourceClaim neuron: create ResourceClaim : resourceclaims "run-neuron-" is forbidden: exceeded quota: devices'
    waits = pod(initContainerStatuses=[], containerStatuses=[])
    waits["spec"] = {}
    refused = event("FailedResourceClaimCreation", text)
    assert told([waits], refused) == f"its pods do not start: FailedResourceClaimCreation: {text}"
    assert told([waits]) == "starts"
    looked_at = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes: 3 cannot allocate all claims.",
    }
    waits["status"]["conditions"] = [looked_at]
    assert told([waits], refused) == "waits for nodes: 0/3 nodes: 3 cannot allocate all claims."
