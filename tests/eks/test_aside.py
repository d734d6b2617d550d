"""Workloads that can never start are set aside, and those behind them start: by Kueue's own verdict, with the deployed function."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.kubernetes.api import Object, path_of
from tests.eks.conftest import Open
from tests.eks.scenes import MERGE, NAMESPACE, QUEUE, TRN1, Scene, job, jobset, next_second, pod, thing
from tests.support import until
from trainium_cdk.cdk.eks.kueue import API as KUEUE
from trainium_cdk.cdk.eks.scaler.aside import AGAIN, AT, digest, never
from trainium_cdk.cdk.eks.scaler.labels import ASIDE

SET = "couldn't assign flavors to pod set "
LATER = "insufficient unused quota for aws.amazon.com/neuron in flavor trn, 16 more needed"
MOST = "insufficient quota for aws.amazon.com/neuron in flavor trn, previously considered podsets requests (0) + current podset request (80) > maximum capacity (64)"


@pytest.mark.parametrize(
    ("message", "for_good"),
    [
        (f"{SET}train: resource aws.amazon.com/neuroncore unavailable in ClusterQueue", True),
        (f"{SET}train: {MOST}", True),
        (f"{SET}train: flavor trn doesn't match node affinity", True),
        (f"{SET}train: untolerated taint {{k v NoSchedule <nil>}} in flavor trn", True),
        ("failed to assign flavors to pod set train: invalid node selector", True),
        ('resources validation failed: spec.podSets[0]: Invalid value: ["memory"]: requests must not exceed its limits', True),
        ("resources didn't satisfy LimitRange constraints: spec.podSets[0]: Invalid value", True),
        (f"{SET}train: {LATER}", False),
        (f"{SET}train: flavor a doesn't match node affinity, {LATER}", False),
        (f"{SET}launcher: {LATER}; {SET}train: {MOST}", True),
        (f"{SET}launcher: {LATER}; {SET}train: {LATER}", False),
        ("ClusterQueue trn is inactive", False),
        ("The workload has failed admission checks", False),
        ("Preempted to accommodate a workload (UID: 1, JobUID: 2) due to reclamation within the cohort", False),
        ("", False),
    ],
)  # fmt: skip
def test_what_kueue_says_of_a_workload_stays_for_good_or_not(message: str, for_good: bool) -> None:
    assert never(message) is for_good


def test_a_change_of_a_queue_or_a_flavor_is_seen() -> None:
    def one(name: str, generation: int) -> Object:
        return {"metadata": {"name": name, "uid": name, "generation": generation}}

    queues, flavors = [one("trn", 1), one("trn.speech", 1)], [one("trn", 1)]
    before = digest(queues, flavors)
    assert before == digest(queues[::-1], flavors)
    assert (
        len({before, digest([one("trn", 2), queues[1]], flavors), digest(queues[:1], flavors), digest(queues, [])}) == 4
    )


def never_starts(kind: str) -> dict[str, Any]:
    """A JobSet's pods that no flavor of the queue takes, and their number."""
    template, nodes = pod(TRN1.neuron_devices), 1
    resources = template["spec"]["containers"][0]["resources"]
    if kind == "resource":
        resources |= {"limits": {"aws.amazon.com/neuroncore": "2"}, "requests": {"aws.amazon.com/neuroncore": "2"}}
    if kind == "size":
        nodes = 5
    if kind == "selector":
        template["spec"]["nodeSelector"] = {"trainium-cdk/node-group": "other"}
    if kind == "limits":
        resources["limits"], resources["requests"] = (
            {**resources["limits"], "memory": "1Gi"},
            {**resources["requests"], "memory": "2Gi"},
        )
    return job(nodes, template)


def noted(scene: Scene, name: str) -> str:
    workload = scene.workload(name) or {}
    assert (workload["spec"].get("active") is False) is (ASIDE in workload["metadata"].get("annotations", {}))
    return str(workload["metadata"].get("annotations", {}).get(ASIDE, ""))


def aside_events(scene: Scene, *names: str) -> list[Any]:
    """Events about these objects. Other tests of the same cluster leave some as well."""
    path = path_of("v1", "Event", namespace=NAMESPACE)
    found = scene.api.get(path, fieldSelector="reason=SetAside")["items"]
    return [e for e in found if e["involvedObject"]["name"] in names]


def test_those_behind_one_that_can_never_start_go_on(opened: Open) -> None:
    """One of each kind is before them. Each of it blocks the queue for as long as it is there (StrictFIFO)."""
    scene = opened("aside", 4)
    wrong = {
        "resource": "resource aws.amazon.com/neuroncore unavailable in ClusterQueue",
        "size": "> maximum capacity (64)",
        "selector": "flavor trn doesn't match node affinity",
        "limits": "requests must not exceed its limits",
    }
    for kind in wrong:
        scene.create(jobset(kind, {"train": never_starts(kind)}))
        assert until(lambda: scene.workload(kind))  # noqa: B023  called at once
        next_second()
    plain = thing(
        "batch/v1",
        "Job",
        "plain",
        {"kueue.x-k8s.io/queue-name": QUEUE},
        spec={**never_starts("resource"), "suspend": True},
    )
    scene.create(plain)
    next_second()
    scene.submit("behind", 1)

    def reserved() -> bool:
        scene.minute()
        return scene.is_("behind", "QuotaReserved")

    assert until(reserved), scene.workload("behind")
    for kind, words in wrong.items():
        assert words in noted(scene, kind)
    assert wrong["resource"] in noted(scene, "plain")
    scene.runs("behind", 1)
    events = aside_events(scene, *wrong, "plain")
    about = {(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for e in events}
    assert about == {*(("JobSet", kind) for kind in wrong), ("Job", "plain")}
    assert all(
        e["type"] == "Warning" and e["message"].startswith("set aside, so that those behind it start: ") for e in events
    )
    scene.minute()
    count = len(events)
    assert len(aside_events(scene, *wrong, "plain")) == count, "once"

    # the queue gets larger: what is too large no more starts by itself
    queue = path_of(KUEUE, "ClusterQueue", f"{QUEUE}.{NAMESPACE}")
    spec = scene.api.get(queue)["spec"]
    larger = [dict(group) for group in spec["resourceGroups"]]
    larger[0] = {
        **larger[0],
        "flavors": [{"name": QUEUE, "resources": [{"name": "aws.amazon.com/neuron", "nominalQuota": "96"}]}],
    }
    scene.api.call("PATCH", queue, {"spec": {"resourceGroups": larger}}, kind=MERGE)
    try:
        assert until(lambda: scene.minute() and scene.is_("size", "QuotaReserved")), scene.workload("size")
        assert noted(scene, "size") == ""
    finally:
        scene.cancel("size")
        scene.api.call("PATCH", queue, {"spec": {"resourceGroups": spec["resourceGroups"]}}, kind=MERGE)
    assert until(lambda: scene.minute() and noted(scene, "selector"))
    since = (scene.workload("selector") or {})["metadata"]["annotations"][AT]
    scene.now += AGAIN
    assert until(
        lambda: (
            scene.minute()
            and noted(scene, "selector")
            and (scene.workload("selector") or {})["metadata"]["annotations"][AT] != since
        )
    )
