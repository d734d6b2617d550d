"""Cancelling jobs on a real Slurm."""

from __future__ import annotations

import shutil

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm
from tests.runner.asking import CLUSTER, Head, job, paused
from tests.support import until
from trainium_cdk.runner.requests import Active, Cancel
from trainium_cdk.runner.status import JobStatus

__all__ = ["paused", "slurm"]


@pytest.fixture(scope="module")
def head(slurm: LocalSlurm) -> Head:
    return Head(slurm)


def states(found: object) -> list[str]:
    assert isinstance(found, JobStatus)
    return [one.state for one in found.stages]


def test_a_job_is_cancelled_once_slurm_has_done_it(head: Head, slurm: LocalSlurm) -> None:
    head.submit(job("stop-1", "sleep 3600", precompile=True))
    assert until(lambda: head.states("stop-1")[0] == "RUNNING", 60)
    assert states(head.cancel("stop-1")) == ["CANCELLED", "CANCELLED"]
    assert slurm.run(["squeue", "-h", "--name=stop-1:train"]).stdout == ""
    assert (head.jobs / "stop-1/cancelled").exists()
    assert not (head.jobs / "stop-1/env.json").exists(), "nothing starts it again"
    assert head.cancel("stop-1") == head.status("stop-1"), "once more changes nothing"
    assert head.submit(job("stop-1", "sleep 3600", precompile=True))[0].resubmitted == ()


def test_one_that_has_ended_stays_as_it_is(head: Head) -> None:
    head.submit(job("ended-1"))
    assert until(lambda: head.states("ended-1") == ["COMPLETED"], 60)
    assert states(head.cancel("ended-1")) == ["COMPLETED"]
    assert not (head.jobs / "ended-1/cancelled").exists()


@pytest.mark.parametrize("id", ["none-1", "", "../jobs", "$(reboot)", "x" * 200, "none-1/3", "none-1/"])
def test_an_unknown_job(head: Head, id: str) -> None:
    error = head.told(Cancel(id))["error"]
    assert error["kind"] == "unknown"
    assert "there is no job" in error["message"]


def test_a_job_whose_folder_was_deleted_is_cancelled(head: Head) -> None:
    """It is shown, and costs money."""
    head.submit(job("bare-1", "echo began; sleep 600"))
    assert until(lambda: "began" in (head.jobs / "bare-1/logs/train.log").read_text(), 60)
    shutil.rmtree(head.jobs / "bare-1")
    assert "bare-1" in [one.id for one in head.ask(Active())]
    assert states(head.cancel("bare-1")) == ["CANCELLED"]
    assert "bare-1" not in [one.id for one in head.ask(Active())]
    assert not (head.jobs / "bare-1").exists()


@pytest.mark.parametrize(
    "content", ["", "{", '{"numbers": {"train": "7; reboot"}}', '{"numbers": {"train": 7}}', "[" * 99_999]
)
def test_a_damaged_record_does_not_keep_it(head: Head, content: str) -> None:
    id = f"damaged-{len(content)}"
    head.submit(job(id, "sleep 600"))
    (head.jobs / id / "submitted.json").write_text(content)
    head.cancel(id)
    assert head.rows(id) == []


def test_a_member_alone(head: Head) -> None:
    head.submit(job("members-1", "sleep 600", array="0-2,4%2"))
    assert until(lambda: head.states("members-1").count("RUNNING") == 2, 60)
    gone = head.cancel("members-1/0")
    assert (gone.id, states(gone)) == ("members-1/0", ["CANCELLED"])
    head.cancel("members-1/4")  # it waits
    found = head.states("members-1")
    assert (found[0], found[3]) == ("CANCELLED", "CANCELLED")
    assert until(lambda: head.states("members-1").count("RUNNING") == 2, 60)
    assert not (head.jobs / "members-1/cancelled").exists()
    error = head.told(Cancel("members-1/3"))["error"]
    assert error == {"kind": "no member", "message": "members-1 has no member 3: it has 0 to 4"}
    assert [one.state for one in head.cancel("members-1").members] == ["CANCELLED"] * 4


def test_a_job_of_another_cluster_is_left_alone(head: Head) -> None:
    head.submit(job("elsewhere-1", "sleep 600"))
    record = head.jobs / "elsewhere-1/submitted.json"
    record.write_text(record.read_text().replace(CLUSTER.identity, "i-old"))
    assert states(head.cancel("elsewhere-1")) == ["UNKNOWN"]
    assert head.rows("elsewhere-1")
    record.write_text(record.read_text().replace("i-old", CLUSTER.identity))
    head.cancel("elsewhere-1")


def test_a_program_that_is_held_by_its_user_stays_held(head: Head, slurm: LocalSlurm, paused: None) -> None:
    [sent] = head.submit(job("held-1"))
    slurm.run(["scontrol", "uhold", sent.stages["train"]])
    assert head.status("held-1").stages[0].reason.startswith("held by its user: scontrol release")
    assert head.status("held-1").stages[0].reason.startswith("held by its user: scontrol release")
    head.cancel("held-1")
