"""How a job's status follows from that of Volcano and of its pods, at each moment of a job's end. Pure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainium_cdk.jobs.kubernetes import status
from trainium_cdk.jobs.kubernetes.names import DESCRIPTION, TRAIN
from trainium_cdk.jobs.status import Stage


def seen(phase: str, *codes: int | None, stages: tuple[str, ...] = (TRAIN,)) -> status.Seen:
    """A job of two nodes in this phase; the exit codes of its pods, None for one that runs."""
    description = json.dumps({"nodes": 2, "stages": stages})
    job: dict[str, Any] = {
        "metadata": {"name": "run", "annotations": {DESCRIPTION: description}},
        "spec": {"maxRetry": 4},
        "status": {"state": {"phase": phase}},
    }
    pods = [
        {
            "metadata": {"labels": {"volcano.sh/task-spec": TRAIN, "volcano.sh/task-index": str(i)}},
            "spec": {"nodeName": f"n{i}"},
            "status": {
                "containerStatuses": [
                    {"name": TRAIN, "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}}}
                ]
            },
        }
        for i, code in enumerate(codes)
    ]
    return status.Seen(job, pods)


@pytest.mark.parametrize(
    ("phase", "codes", "state", "reason", "done"),
    [
        ("Running", (None, None), "RUNNING", "", False),
        ("Running", (0, None), "RUNNING", "", False),
        ("Running", (0, 0), "RUNNING", "ends", False),
        ("Completed", (0, 0), "COMPLETED", "", True),
        ("Running", (3, None), "RUNNING", "exit code 3; ends or starts again", False),
        ("Terminating", (3, None), "RUNNING", "exit code 3; ends", False),
        ("Terminated", (3, 143), "FAILED", "exit code 3", True),
        ("Aborting", (None, None), "RUNNING", "is being cancelled", False),
        ("Aborting", (143, None), "RUNNING", "exit code 143; ends", False),
        ("Aborted", (143, 143), "CANCELLED", "", True),
        ("Aborted", (), "CANCELLED", "", True),
        ("Failed", (None, None), "FAILED", "failed in its only attempt: see its log", True),
    ],
)
def test_a_job_is_done_when_volcano_reports_it(
    phase: str, codes: tuple[int | None, ...], state: str, reason: str, done: bool
) -> None:
    now = status.status(seen(phase, *codes))
    assert (now.state, now.current.reason, now.done) == (state, reason, done)
    assert now.done is status.ended(seen(phase, *codes).job)


@pytest.mark.parametrize(
    ("phase", "first", "second", "reason"),
    [
        ("Failed", "FAILED", "CANCELLED", "did not run: precompile did not complete"),
        ("Failed", "CANCELLED", "CANCELLED", "did not run: precompile did not complete"),
        ("Running", "RUNNING", "PENDING", "waits for precompile"),
        ("Failed", "COMPLETED", "FAILED", "failed in its only attempt: see its log"),
    ],
)
def test_a_stage_waits_for_the_one_before(phase: str, first: str, second: str, reason: str) -> None:
    stages = [Stage("precompile", "", first), Stage(TRAIN, "", "PENDING")]
    now = status._with_job(stages, seen(phase))[1]
    assert (now.state, now.reason) == (second, reason)


@pytest.mark.parametrize(
    "annotation",
    [
        "",
        "[]",
        "{",
        "[" * 3000,
        '{"nodes": "two", "stages": "train", "global_batch_size": [], "expected": {"nothing": 1}}',
        '{"nodes": 1e999, "stages": [["train"], "reboot", null], "expected": "x", "ranks_per_node": {}}',
        '{"nodes": 99999999999999999, "stages": [], "expected": {"sequences_per_second": "x", "source": 1}}',
    ],
)
def test_a_users_changes_to_a_job_affect_only_its_own_row(annotation: str) -> None:
    now = seen("Running", None, None)
    now.job["metadata"]["annotations"] = {DESCRIPTION: annotation}
    found = status.status(now)
    assert [stage.name for stage in found.stages] == [TRAIN]
    assert found.nodes <= 10_000
    assert found.to_dict()["state"] == "RUNNING"
