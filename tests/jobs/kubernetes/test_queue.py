"""Why a job waits, from Kueue's objects: who is before it, what that one lacks in nodes, and who has them. Pure. With real Kueue:
tests/jobs/kubernetes/test_rivals.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainium_cdk.client.jobs.kubernetes import look, reasons
from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.jobs.kubernetes.reasons import Waits

DEVICE = "aws.amazon.com/neuron"
SET = "couldn't assign flavors to pod set train: "
DEVICES = {"trn": 16, "one": 1}


@pytest.mark.parametrize(
    ("kueue", "told"),
    [
        (f"{SET}insufficient unused quota for {DEVICE} in flavor trn, 48 more needed", "it lacks 3 nodes of trn"),
        (f"{SET}insufficient unused quota for {DEVICE} in flavor trn, 16 more needed", "it lacks 1 node of trn"),
        (f"{SET}insufficient unused quota for {DEVICE} in flavor trn, 4 more needed", "it lacks 4 devices of trn (a node has 16)"),
        (f"{SET}insufficient unused quota for {DEVICE} in flavor one, 1k more needed", "it lacks 1000 nodes of one"),
        (f"{SET}insufficient unused quota for cpu in flavor theirs, 500m more needed", "insufficient unused quota for cpu in flavor theirs, 500m more needed"),
        (
            f"{SET}insufficient quota for {DEVICE} in flavor trn, previously considered podsets requests (16) + current podset request (64) "
            "> maximum capacity (64)",
            "it asks for 5 nodes of trn, and its queue has at most 4 nodes",
        ),
        (f"{SET}resource aws.amazon.com/neuroncore unavailable in ClusterQueue", "it asks for aws.amazon.com/neuroncore, which its queue does not have"),
        (f"{SET}flavor trn doesn't match node affinity", "its node selector or affinity matches no node of trn"),
        (f"{SET}untolerated taint {{a b NoSchedule <nil>}} in flavor trn", "it does not tolerate a taint of the nodes of trn"),
        ("ClusterQueue trn is inactive", "its queue starts no jobs now: kubectl describe clusterqueue trn has the reason"),
        ("ClusterQueue trn is stopped", "an administrator has stopped its queue"),
        ("The LocalQueue is stopped", "an administrator has stopped its queue"),
        ("LocalQueue trn is terminating or missing", "queue trn no longer exists: submit it again to another --queue"),
        ("The workload is deactivated due to exceeding the maximum number of re-queuing retries", "Kueue tries it no more: exceeding the maximum number of re-queuing retries"),
        ("Exceeded the PodsReady timeout ns/jobset-a", "its pods were not all ready within ns/jobset-a, and it is tried again"),
        (
            f"{SET}insufficient unused quota for {DEVICE} in flavor trn, 48 more needed. Pending the preemption of 2 workload(s)",
            "it lacks 3 nodes of trn; jobs of a lower priority leave their nodes to it (2)",
        ),
        ("Admission is gated by: example.com/gate", "example.com/gate holds it (annotation kueue.x-k8s.io/admission-gated-by)"),
    ],
)  # fmt: skip
def test_kueues_reasons_are_told_in_nodes(kueue: str, told: str) -> None:
    assert reasons.in_nodes(kueue, DEVICES) == told


@pytest.mark.parametrize(
    ("kind", "reason", "message", "told"),
    [
        ("QuotaReserved", "TopologyPlacementFailed", 'topology "trn" allows to fit only 3 out of 4 pod(s)', 'the free nodes are not close enough to each other: topology "trn" allows to fit only 3 out of 4 pod(s)'),
        ("QuotaReserved", "NoMatchingFlavor", "", "no nodes of its queue suit it"),
        ("QuotaReserved", "Pending", "as Kueue says", "as Kueue says"),
        ("QuotaReserved", "Misconfigured", "pod set train exceeds LimitRange", "it or its queue cannot start as it is written: pod set train exceeds LimitRange"),
        ("Evicted", "NodeFailures", "Workload eviction triggered due to multiple TAS assigned node failures, including: a, b", "its nodes failed: a, b"),
        ("Evicted", "LocalQueueStopped", "", "an administrator has stopped its queue"),
        ("Evicted", "DeactivatedDueToRequeuingLimitExceeded", "", "it was tried too often"),
    ],
)  # fmt: skip
def test_a_reason_has_words_where_its_message_has_none(kind: str, reason: str, message: str, told: str) -> None:
    found = workload("x")
    status = "True" if kind == "Evicted" else "False"
    found["status"]["conditions"] = [{"type": kind, "status": status, "reason": reason, "message": message}]
    assert reasons.why_no_nodes(found) == [told]


WHY_NOT_YET = [
    "NoMatchingFlavor", "WaitingForQuota", "ExceedsMaxQuota", "TopologyPlacementFailed", "WaitingForPreemptedWorkloads",
    "Misconfigured", "Suspended", "PendingEvaluation", "WaitingForPodsReady", "Inadmissible", "OnHold", "AdmissionGated",
    "PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped", "LocalQueueStopped", "NodeFailures", "FlavorMigration",
    "EvictedOnManagerCluster", "Deactivated", "RequeuingLimitExceeded", "MaximumExecutionTimeExceeded",
]  # fmt: skip
"""The reasons of the conditions QuotaReserved and Evicted of Kueue 0.18 (apis/kueue/v1beta2/workload_types.go), beside Pending, Waiting and
Preempted, whose messages say more."""


@pytest.mark.parametrize("reason", WHY_NOT_YET)
def test_every_reason_of_kueue_has_words(reason: str) -> None:
    found = workload("x", QuotaReserved="")
    found["status"]["conditions"][0]["reason"] = reason
    [told] = reasons.why_no_nodes(found)
    assert " " in told
    assert reason not in told


def workload(name: str, priority: int = 0, has: int = 0, uid: str = "", **conditions: str) -> dict[str, Any]:
    """One in queue trn. `has`: nodes. `conditions`: messages by type; QuotaReserved is false, and Evicted true."""
    states = {"Evicted": "True"}
    made: dict[str, Any] = {
        "metadata": {"name": f"jobset-{name}", "ownerReferences": [{"name": name, "uid": uid or name}]},
        "spec": {"queueName": "trn", "priority": priority, "active": True},
        "status": {"conditions": [{"type": k, "status": states.get(k, "False"), "message": v, "reason": ""} for k, v in conditions.items()]},
    }  # fmt: skip
    if has:
        usage = {
            "resourceUsage": {DEVICE: str(16 * has), "cpu": "9"},
            "flavors": {DEVICE: "trn", "cpu": "trn-unlimited"},
        }
        made["status"]["admission"] = {"clusterQueue": "trn", "podSetAssignments": [usage]}
    return made


def cluster_queue(name: str, nodes: int, cohort: str = "trn") -> dict[str, Any]:
    used = [{"name": "trn", "resources": [{"name": DEVICE, "total": str(16 * nodes)}]}]
    return {"metadata": {"name": name}, "spec": {"cohortName": cohort}, "status": {"flavorsReservation": used}}


LOCAL = [{"metadata": {"name": "trn"}, "spec": {"clusterQueue": "trn"}}]
QUEUES = [
    cluster_queue("trn", 2),
    cluster_queue("trn.vision", 2),
    cluster_queue("trn.speech", 0),
    cluster_queue("other", 9, "x"),
]
SHORT = f"{SET}insufficient unused quota for {DEVICE} in flavor trn, 48 more needed"
HELD = "nodes of trn in use: wide 2, namespace vision 2"


def told(*pending: dict[str, Any], holders: Any = ()) -> list[str]:
    found = reasons.waiting(pending, [workload("wide", has=2), *holders], LOCAL, QUEUES, DEVICES)
    return [reasons.describe_wait(one, found[one["metadata"]["ownerReferences"][0]["uid"]]) for one in pending]


def test_those_behind_the_head_name_it_and_its_reason() -> None:
    first, second = told(workload("large", QuotaReserved=SHORT), workload("small"))
    assert first == f"position 1 in its queue: it lacks 3 nodes of trn; {HELD}"
    assert second == f"position 2 in its queue, behind large: it lacks 3 nodes of trn; {HELD}"


def test_one_that_pauses_is_not_what_others_wait_for() -> None:
    """Kueue tries it again later, and the next one goes first."""
    paused, head, last = told(
        workload("paused", Requeued="", QuotaReserved="x"), workload("head", QuotaReserved=SHORT), workload("last")
    )
    assert "behind" not in paused
    assert head.startswith("position 2 in its queue: it lacks 3 nodes")
    assert last.startswith("position 3 in its queue, behind head: it lacks 3 nodes")


def test_what_is_not_active_has_no_position() -> None:
    """Kueue leaves it out, so nobody waits behind it."""
    one, two = workload("cancelled", priority=1), workload("next", QuotaReserved=SHORT)
    one["spec"]["active"] = False
    two["metadata"]["creationTimestamp"] = "2026-11-27T08:00:00Z"
    rows: dict[str, list[Any]] = {"Workload": [one, two], "LocalQueue": LOCAL, "ClusterQueue": QUEUES}
    api = cast(Api, SimpleNamespace(list=lambda kind, **_: rows[kind], table=lambda *_, **__: []))
    assert {uid: wait.position for uid, wait in look.waiting(DEVICES, look.Workloads(api)).items()} == {"next": 1}


@pytest.mark.parametrize(
    ("why", "by", "who"),
    [
        ("reclamation within the cohort", "trn.vision", "its nodes went to namespace vision, whose own they are"),
        ("reclamation within the cohort", "trn.unseen", "its nodes went to namespace unseen, whose own they are"),
        ("prioritization in the ClusterQueue", "trn", "its nodes went to urgent, which has a higher priority"),
    ],
)
def test_who_took_a_jobs_nodes_does_not_hide_what_it_lacks_now(why: str, by: str, who: str) -> None:
    job = "u-1" if by == "trn" else "u-2"
    message = f"Preempted to accommodate a workload (UID: w, JobUID: {job}) due to {why}; preemptor path: /trn/{by}; preemptee path: /trn/trn"
    urgent = workload("urgent", has=1, uid="u-1")
    [text] = told(workload("large", QuotaReserved=SHORT, Evicted=message), holders=[urgent])
    assert (
        text
        == f"position 1 in its queue: it lacks 3 nodes of trn; nodes of trn in use: wide 2, urgent 1, namespace vision 2; {who}"
    )
    just = workload("large", QuotaReserved=message, Evicted=message)
    assert reasons.why_no_nodes(just, Waits()) == []
    assert who.partition(",")[0].partition(" went")[0] in reasons.taken(just, Waits())


def test_what_is_set_aside_says_why_and_how_it_comes_back() -> None:
    found = workload("cores", QuotaReserved="x", Evicted="The workload is deactivated")
    found["metadata"]["annotations"] = {reasons.ASIDE: f"{SET}resource a/b unavailable in ClusterQueue"}
    assert reasons.describe_wait(found, Waits()) == "waits in its queue: x", "it is active again"
    found["spec"]["active"] = False
    assert (
        reasons.describe_wait(found, Waits())
        == f"set aside, as it can never start: it asks for a/b, which its queue does not have. {reasons.BACK}"
    )
