"""How a job's status follows from those of its JobSet, its pods and Kueue's Workload, at each moment. Pure."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from trainium_cdk.client.jobs.kubernetes import parts, status
from trainium_cdk.client.jobs.kubernetes.parts import (
    AFTER,
    AFTER_LABEL,
    DESCRIPTION,
    INDEX_LABEL,
    NEVER,
    QUEUE,
    QUEUE_LABEL,
    TASK_LABEL,
    TRAIN,
)
from trainium_cdk.client.jobs.kubernetes.reasons import Waits, why_no_nodes
from trainium_cdk.client.jobs.status import Stage


def seen(ends: str, *codes: int | None, stages: tuple[str, ...] = (TRAIN,), restarts: int = 0) -> status.JobObjects:
    """A job of two nodes with a condition of this type and reason; the exit codes of its pods, None for one that runs."""
    kind, _, reason = ends.partition(": ")
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": "why", "lastTransitionTime": None}]
    job: dict[str, Any] = {
        "metadata": {
            "name": "run",
            "labels": {QUEUE_LABEL: "trn"},
            "annotations": {DESCRIPTION: json.dumps({"nodes": 2, "stages": stages})},
        },
        "spec": {"failurePolicy": {"maxRestarts": 3}, "suspend": False},
        "status": {"conditions": conditions if kind else [], "restarts": restarts},
    }
    pods = [
        {
            "metadata": {"labels": {TASK_LABEL: TRAIN, INDEX_LABEL: str(i)}},
            "spec": {"nodeName": f"n{i}"},
            "status": {
                "containerStatuses": [
                    {"name": TRAIN, "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}}}
                ]
            },
        }
        for i, code in enumerate(codes)
    ]
    return status.JobObjects(job, pods)


def test_a_cancelled_job_keeps_when_its_stages_began() -> None:
    """Its pods, which had the times, are deleted."""
    before = seen("", None, None)
    for number, pod in enumerate(before.pods):
        [container] = pod["status"]["containerStatuses"]
        container["state"]["running"]["startedAt"] = f"2026-11-24T07:00:0{number}Z"
    before.job["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    change = status.cancelled(before.job, status.status(before).stages)["status"]
    [stage] = status.status(status.JobObjects({**before.job, "status": change}, [])).stages
    assert (stage.state, stage.started, stage.reason) == ("CANCELLED", 1795503600, "")
    assert stage.ended is not None
    [waited] = status.status(seen("Failed: Cancelled")).stages
    assert (waited.state, waited.started) == ("CANCELLED", None)


def test_what_had_completed_stays_so_after_a_cancellation() -> None:
    before = seen("", None, None, stages=("precompile", TRAIN))
    for number, pod in enumerate(before.pods):
        over = {"exitCode": 0, "startedAt": "2026-11-24T07:00:00Z", "finishedAt": f"2026-11-24T07:10:0{number}Z"}
        pod["status"]["initContainerStatuses"] = [{"name": "precompile", "state": {"terminated": over}}]
    before.job["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    change = status.cancelled(before.job, status.status(before).stages)["status"]
    compiled, trained = status.status(status.JobObjects({**before.job, "status": change}, [])).stages
    assert (compiled.state, compiled.started, compiled.ended) == ("COMPLETED", 1795503600, 1795504201)
    assert trained.state == "CANCELLED"


LIMIT, FINAL = "Failed: ReachedMaxRestarts", "Failed: FailJobSetFailurePolicyAction"


@pytest.mark.parametrize(
    ("ends", "codes", "restarts", "state", "reason", "done"),
    [
        ("", (None, None), 0, "RUNNING", "", False),
        ("", (None, None), 2, "RUNNING", "attempt 3 of 4", False),
        ("", (), 1, "PENDING", "attempt 2 of 4; starts", False),
        ("", (0, None), 0, "RUNNING", "", False),
        ("", (0, 0), 0, "RUNNING", "ends", False),
        ("Completed: AllJobsCompleted", (0, 0), 0, "COMPLETED", "", True),
        ("Completed: AllJobsCompleted", (), 0, "COMPLETED", "", True),
        ("", (3, None), 0, "RUNNING", "exit code 3; ends or starts again", False),
        (FINAL, (3, 143), 0, "FAILED", "exit code 3", True),
        (FINAL, (124, None), 0, "TIMEOUT", "reached its time limit", True),
        (FINAL, (), 0, "FAILED", "failed, and its failure policy does not start it again: why", True),
        ("Failed: Cancelled", (143, 143), 0, "CANCELLED", "", True),
        ("Failed: Cancelled", (None, None), 0, "CANCELLED", "", True),
        (LIMIT, (), 0, "FAILED", "failed in its only attempt: see its log", True),
        (LIMIT, (None, None), 3, "FAILED", "failed in each of 4 attempts: see its log", True),
    ],
)
def test_a_job_is_done_when_jobset_reports_it(
    ends: str, codes: tuple[int | None, ...], restarts: int, state: str, reason: str, done: bool
) -> None:
    now = status.status(seen(ends, *codes, restarts=restarts))
    assert (now.state, now.current.reason, now.done) == (state, reason, done)
    assert now.done is status.ended(seen(ends, *codes).job)


@pytest.mark.parametrize(
    ("restarts", "lost", "reason"),
    [
        (0, [], "needs attention since 2026-11-27 09:00 UTC: see trn status run"),
        (1, [], "attempt 2 of 4; needs attention since 2026-11-27 09:00 UTC: see trn status run"),
        (0, ["n1"], "node n1 not ready: without a change its pods are ended after 5 minutes, and the job starts again; "
                    "needs attention since 2026-11-27 09:00 UTC: see trn status run"),
    ],
)  # fmt: skip
def test_a_training_that_does_not_go_on_is_told(restarts: int, lost: list[str], reason: str) -> None:
    now = seen("", None, None, restarts=restarts)
    for pod, ready in zip(now.pods, (False, True), strict=True):
        [container] = pod["status"]["containerStatuses"]
        container |= {"ready": ready, "state": {"running": {"startedAt": "2026-11-27T08:30:00Z"}}}
        condition = {"type": "ContainersReady", "status": str(ready), "lastTransitionTime": "2026-11-27T09:00:00Z"}
        pod["status"] |= {"phase": "Running", "conditions": [condition]}
    found = status.status(dataclasses.replace(now, lost=lost))
    assert (found.state, found.current.reason) == ("RUNNING", reason)


def test_an_image_that_cannot_be_pulled_is_told() -> None:
    """The first container of a pod that needs it is the one that creates the jobs' directory; the others wait for that one."""
    pulls = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x/y:1"'}}
    found = seen("", None, None)
    for pod in found.pods:
        pod["status"] = {
            "initContainerStatuses": [{"name": "folder", "state": pulls}],
            "containerStatuses": [{"name": TRAIN, "state": {"waiting": {"reason": "PodInitializing"}}}],
        }
    now = status.status(found)
    assert (now.state, now.current.reason) == ("PENDING", 'ImagePullBackOff: Back-off pulling image "x/y:1"')
    found.pods[0]["status"] = {"containerStatuses": [{"name": TRAIN, "state": {"running": {}}}]}
    now = status.status(found)
    assert (now.state, now.current.reason[:35]) == ("RUNNING", "1 of its pods: ImagePullBackOff: Ba")


@pytest.mark.parametrize(
    ("ends", "first", "second", "reason"),
    [
        (LIMIT, "FAILED", "CANCELLED", "did not run: precompile did not complete"),
        (LIMIT, "CANCELLED", "CANCELLED", "did not run: precompile did not complete"),
        ("", "RUNNING", "PENDING", "waits for precompile"),
        (LIMIT, "COMPLETED", "FAILED", "failed in its only attempt: see its log"),
    ],
)
def test_a_stage_waits_for_the_one_before(ends: str, first: str, second: str, reason: str) -> None:
    stages = [Stage("precompile", "", first), Stage(TRAIN, "", "PENDING")]
    now = status._with_job(stages, seen(ends))[1]
    assert (now.state, now.reason) == (second, reason)


@pytest.mark.parametrize(
    ("ran", "late"), [(None, ""), (0, ""), (1_795_000_000, "; nodes are neither started nor stopped since 11:06 UTC on 2026-11-18")]
)  # fmt: skip
def test_a_function_that_has_not_run_is_reported(ran: int | None, late: str) -> None:
    job = seen("").job
    job["spec"]["suspend"] = True
    assert status.status(status.JobObjects(job, ran=ran)).current.reason == f"waits in its queue{late}"
    now = status.status(status.JobObjects(job, ran=int(time.time())))
    assert now.current.reason == "waits in its queue"


def _condition(kind: str, true: bool, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True" if true else "False", "reason": kind, "message": message}


def job_after(first: str, *conditions: str) -> dict[str, Any]:
    """A JobSet that comes after `other`, and waits for `first`, if it does."""
    names = {AFTER: "other", QUEUE: "trn", DESCRIPTION: "{}"}
    labels = {AFTER_LABEL: first} if first else {}
    metadata = {"name": "run", "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": names}
    return {"metadata": metadata, "status": {"conditions": [_condition(kind, True, "") for kind in conditions]}}


def other(kind: str) -> dict[str, Any]:
    return {"metadata": {"name": "other"}, "status": {"conditions": [_condition(kind, True, "")] if kind else []}}


@pytest.mark.parametrize(
    ("first", "before", "prepared", "then"),
    [
        ("other", ["Completed"], None, "queue"),
        ("other", ["Completed", "Completed"], None, "queue"),
        ("other", ["Completed", ""], None, None),
        ("other", [], None, None),  # it is not there to be seen
        ("prepare", ["Completed"], None, None),
        ("prepare", ["Completed"], "", None),
        ("prepare", ["Completed"], "Complete", "queue"),
        ("prepare", [""], "Complete", None),
        ("other", ["Completed", "Failed"], None, "fail"),
        ("", ["Completed"], "Complete", None),  # it is in its queue
    ],
)
def test_a_job_enters_its_queue_or_fails_after_the_others(
    first: str, before: list[str], prepared: str | None, then: str | None
) -> None:
    """It is changed only as it was read. A condition of its own stays; one that has ended is not changed."""
    prepare = None if prepared is None else other(prepared)
    job = job_after(first, "StartupPolicyCompleted")
    found = status.released(status.JobObjects(job, prepare=prepare, after=[other(kind) for kind in before]))
    proof = {"uid": "u", "resourceVersion": "7"}
    if found is None or then is None:
        assert found is then
    elif then == "queue":
        labels = {AFTER_LABEL: None, QUEUE_LABEL: "trn"}
        assert found == ({"metadata": {**proof, "labels": labels}}, "")
    else:
        change, path = found
        assert (path, change["metadata"], change["status"]["terminalState"]) == ("/status", proof, "Failed")
        kept, new = change["status"]["conditions"]
        assert kept == job["status"]["conditions"][0]
        assert (new["type"], new["status"], new["reason"], new["message"]) == (
            "Failed", "True", NEVER, "other did not complete",
        )  # fmt: skip
    for kind in ("Completed", "Failed"):
        assert (
            status.released(status.JobObjects(job_after(first, kind), prepare=prepare, after=[other("Failed")])) is None
        )


CHECK = {"name": "trn-nodes", "state": "Pending", "message": "waits for 2 nodes of trn since 10:12 UTC"}
RESET = {"name": "trn-nodes", "state": "Pending", "message": "Reset to Pending after eviction. Previously: Ready"}
"""As Kueue leaves it in each eviction."""
PREEMPTED = (
    "Preempted to accommodate a workload (UID: a-b, JobUID: c-d) due to prioritization in the ClusterQueue; preemptor path: /trn; preemptee "
    "path: /trn"
)
RETRIES = 'Evicted due to AdmissionCheck in Retry state: "trn-nodes" (Retrying after failure: 0 of 2 nodes of trn came (none))'
RETRY = {"name": "trn-nodes", "state": "Retry", "message": "Retrying after failure: InsufficientInstanceCapacity"}


@pytest.mark.parametrize(
    ("conditions", "checks", "position", "reason"),
    [
        (None, [], 0, "waits in its queue"),
        ([], [], 7, "position 7 in its queue"),
        ([("QuotaReserved", False, "16 more needed")], [], 1, "position 1 in its queue: 16 more needed"),
        ([("QuotaReserved", True, "")], [], 0, "it is its turn: its nodes are requested"),
        ([("QuotaReserved", True, "")], [CHECK], 0, "waits for 2 nodes of trn since 10:12 UTC"),
        ([("QuotaReserved", True, "")], [{**CHECK, "state": "Ready"}], 0, "it is its turn: its nodes are requested"),
        ([("QuotaReserved", False, "not all checks")], [RETRY], 2, "position 2 in its queue: Retrying after failure: InsufficientInstanceCapacity"),
        ([("QuotaReserved", False, "32 more needed"), ("Evicted", True, PREEMPTED)], [RESET], 1, "position 1 in its queue: 32 more needed; its nodes went to another job, which has a higher priority"),
        ([("QuotaReserved", False, "32 more needed"), ("Evicted", True, RETRIES)], [RESET], 2, "position 2 in its queue: Retrying after failure: 0 of 2 nodes of trn came (none)"),
        ([("QuotaReserved", False, ""), ("Evicted", True, "The workload is deactivated")], [RESET], 0, "waits in its queue: The workload is deactivated"),
        ([("QuotaReserved", True, ""), ("Evicted", False, f"Previously: {PREEMPTED}")], [RESET], 0, "it is its turn: its nodes are requested"),
    ],
)  # fmt: skip
def test_why_a_job_waits(conditions: Any, checks: list[Any], position: int, reason: str) -> None:
    job = seen("").job
    job["spec"]["suspend"] = True
    found = {"status": {"conditions": [_condition(*c) for c in conditions or []], "admissionChecks": checks}}
    now = status.status(status.JobObjects(job, workload=None if conditions is None else found, waits=Waits(position)))
    assert (now.state, now.current.reason) == ("PENDING", reason)


def test_a_reason_is_there_once() -> None:
    check = {**RETRY, "message": "Retrying after failure: 0 of 2 nodes of trn came (none)"}
    found = {"status": {"conditions": [_condition("Evicted", True, RETRIES)], "admissionChecks": [check]}}
    assert why_no_nodes(found) == [check["message"]]


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "[]",
        "{",
        "[" * 3000,
        '{"nodes": "two", "stages": "train", "global_batch_size": []}',
        '{"nodes": 1e999, "stages": [["train"], "reboot", null], "ranks_per_node": {}}',
        '{"nodes": 99999999999999999, "stages": []}',
    ],
)
def test_a_users_changes_to_a_job_affect_only_its_own_row(annotation: str) -> None:
    now = seen("", None, None)
    now.job["metadata"]["annotations"] = {DESCRIPTION: annotation}
    found = status.status(now)
    assert [stage.name for stage in found.stages] == [TRAIN]
    assert found.nodes <= 10_000
    assert found.to_dict()["state"] == "RUNNING"


KILLED = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-24T07:10:00Z"}
MORE = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-24T07:09:59Z"}
SMALLER = "Use fewer data loader workers or compiler processes, a smaller batch, or an instance type with more memory"


@pytest.mark.parametrize(
    "said", [{"reason": "OOMKilled"}, {"reason": "Error", "message": '{"code": 137, "last": "out of memory"}'}]
)
def test_a_pod_whose_memory_was_full(said: dict[str, str]) -> None:
    """By the kernel, which kills all of a container's programs, or by the container itself, where the kernel has killed one of them."""
    found = seen("", 137, 1)
    for pod, ended in zip(found.pods, ({**KILLED, **said}, MORE), strict=True):
        pod["status"]["containerStatuses"][0]["state"]["terminated"] = ended
        pod["spec"]["containers"] = [{"name": TRAIN, "resources": {"limits": {"memory": "450Gi"}}}]
    [stage] = status.status(found).stages
    assert (stage.state, stage.reason) == (
        "RUNNING",
        f"was killed: it needed more than its 450 GiB of memory. {SMALLER}; ends",
    )
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "FailJobSetFailurePolicyAction",
        "message": "",
        "lastTransitionTime": None,
    }
    found.job["status"]["conditions"] = [failed]
    [stage] = status.status(found).stages
    assert (stage.state, stage.exit_code, stage.failed_node) == ("OUT_OF_MEMORY", 137, 0)
    assert stage.reason == f"was killed: it needed more than its 450 GiB of memory. {SMALLER}"


def test_a_pod_whose_memory_was_full_names_the_exception_that_came_with_it() -> None:
    found = seen("", 137, 1)
    said = {"raised": ["ValueError: a worker is gone"]}
    told = {"node": 0, "code": 137, "last": "out of memory", "kills": 1, "said": said}
    for pod, ended in zip(found.pods, ({**KILLED, "reason": "Error", "message": json.dumps(told)}, MORE), strict=True):
        pod["status"]["containerStatuses"][0]["state"]["terminated"] = ended
        pod["spec"]["containers"] = [{"name": TRAIN, "resources": {"limits": {"memory": "450Gi"}}}]
    failed = {"type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": None}
    found.job["status"]["conditions"] = [failed]
    [stage] = status.status(found).stages
    assert stage.state == "OUT_OF_MEMORY"
    full = f"was killed: it needed more than its 450 GiB of memory. {SMALLER}"
    assert stage.why == f"{full}. The last exception of its log: ValueError: a worker is gone"


def test_graphs_that_do_not_compile() -> None:
    found = seen(FINAL, None, stages=("precompile", TRAIN))
    ended = {"exitCode": 65, "message": json.dumps({"code": 0, "last": "graphs failed to compile"})}
    found.pods[0]["status"] = {"initContainerStatuses": [{"name": "precompile", "state": {"terminated": ended}}]}
    found.pods[0]["spec"]["containers"] = []
    compiled, trained = status.status(found).stages
    assert (compiled.state, compiled.reason, compiled.exit_code) == ("FAILED", "did not compile: see its log", 65)
    assert (trained.state, trained.reason) == ("CANCELLED", "did not run: precompile did not complete")


FIRST = {"code": 143, "last": "SIGTERM", "first": {"node": 7, "code": 3, "last": "ValueError: the loss is nan"}}


@pytest.mark.parametrize(
    ("message", "code", "node"),
    [
        (json.dumps({"code": 3, "last": "ValueError"}), 3, 0),
        (json.dumps(FIRST), 3, 7),
        *(
            (text, 66, 0)
            for text in (
                "",
                "[]",
                "3",
                '{"code": "x", "first": [1]}',
                "[" * 9000,
                '{"first": {"code": [], "node": {}}}',
                "\x1b[2J",
            )
        ),
    ],
)
def test_what_a_runner_has_told_of_its_end(message: str, code: int, node: int) -> None:
    """Whatever runs in a pod may have written it."""
    found = seen(FINAL, 66)
    found.pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = message
    [stage] = status.status(found).stages
    assert (stage.state, stage.reason, stage.exit_code, stage.failed_node) == (
        "FAILED",
        f"exit code {code}",
        code,
        node,
    )


RUNC = 'runc create failed: unable to start container process: error during container init: exec: "python3": executable file not found in $PATH: unknown'
NO_PYTHON = {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z", "message": RUNC}
WANTED = "image x/y:1 has no python3 on its PATH, which starts each job. Use one with Python 3.9 or newer, as the examples of trn image build have"


@pytest.mark.parametrize(
    ("container", "end", "reason"),
    [
        ("folder", NO_PYTHON, WANTED),
        ("train", NO_PYTHON, WANTED),
        (
            "folder",
            {"exitCode": 1},
            "the jobs' folder on the shared file system was not made: exit code 1. See the log of its container folder",
        ),
    ],
)
def test_an_image_without_python_is_told_in_plain_words(container: str, end: dict[str, Any], reason: str) -> None:
    found = seen(FINAL, None)
    pod = found.pods[0]
    pod["spec"] |= {
        "containers": [{"name": TRAIN, "image": "x/y:1"}],
        "initContainers": [{"name": "folder", "image": "x/y:1"}],
    }
    pod["status"] = {"initContainerStatuses": [{"name": container, "state": {"terminated": end}}]}
    [stage] = status.status(found).stages
    assert (stage.state, stage.reason, stage.started) == ("FAILED", reason, None)


def test_an_image_without_python_is_told_of_what_prepares() -> None:
    found = seen("", stages=("prepare", TRAIN))
    found.job["metadata"]["labels"] = {AFTER_LABEL: "run-prepare"}
    pod = {
        "metadata": {"labels": {TASK_LABEL: "prepare"}},
        "spec": {"containers": [], "initContainers": [{"name": "folder", "image": "x/y:1"}]},
        "status": {"initContainerStatuses": [{"name": "folder", "state": {"terminated": NO_PYTHON}}]},
    }
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "exit code 128"}
    first, _ = status.status(status.JobObjects(found.job, [pod], {"status": {"conditions": [failed]}})).stages
    assert (first.state, first.reason) == ("FAILED", WANTED)


def test_a_submission_that_was_broken_off_is_told() -> None:
    found = seen("")
    found.job["spec"]["suspend"] = True
    found.job["metadata"]["labels"] = {}
    [stage] = status.status(found).stages
    assert (stage.state, stage.reason) == (
        "PENDING",
        "is being submitted; if it stays so, submit it again with the same token, or cancel it",
    )


def test_the_compiler_whose_memory_was_full() -> None:
    found = seen(FINAL, None, stages=("precompile", TRAIN))
    [pod] = found.pods
    pod["status"] = {"initContainerStatuses": [{"name": "precompile", "state": {"terminated": KILLED}}]}
    pod["spec"] |= {"containers": [], "initContainers": [{"name": "precompile"}]}
    compiled, trained = status.status(found).stages
    assert (compiled.state, compiled.reason) == (
        "OUT_OF_MEMORY",
        f"was killed: it needed more than its memory. {SMALLER}",
    )
    assert (trained.state, trained.reason) == ("CANCELLED", "did not run: precompile did not complete")


@pytest.mark.parametrize("over", [False, True])
def test_what_prepares_and_whose_memory_was_full(over: bool) -> None:
    """The setting to raise is named."""
    found = seen("", stages=("prepare", TRAIN))
    found.job["metadata"]["labels"] = {AFTER_LABEL: "run-prepare"}
    spec = {**parts.ON_SYSTEM, "containers": [{"name": "prepare", "resources": {"limits": {"memory": "4096Mi"}}}]}
    labels = {TASK_LABEL: "prepare"}
    pod = {
        "metadata": {"labels": labels},
        "spec": spec,
        "status": {"containerStatuses": [{"name": "prepare", "state": {"terminated": KILLED}}]},
    }
    ended = {
        "type": "Failed",
        "status": "True",
        "reason": "PodFailurePolicy",
        "message": "exit code 137 matching FailJob",
    }
    prepare = {"status": {"conditions": [ended] if over else []}}
    first, then = status.status(status.JobObjects(found.job, [pod], prepare)).stages
    reason = "was killed: it needed more than its 4 GiB of memory. Raise eks.prepare_memory_gib and deploy, then start it again"
    assert (first.state, first.reason) == (("OUT_OF_MEMORY", reason) if over else ("RUNNING", f"{reason}; ends"))
    assert then.state == ("CANCELLED" if over else "PENDING")


def test_an_evicted_pod_may_run_again() -> None:
    """It ends with the same code."""
    found = seen("", 137, None)
    found.pods[0]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": ""}
    ]
    [stage] = status.status(found).stages
    assert (stage.state, stage.reason) == (
        "RUNNING",
        "its pod on node n0 is ended: EvictionByEvictionAPI:; ends or starts again",
    )
