"""`--after JOB`, on a real Slurm; and who submitted a job, and when."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.jobs.test_slurm import script
from trainium_cdk.errors import SubmitError
from trainium_cdk.jobs import SlurmBackend


def test_a_job_after_another_one(backend: SlurmBackend, shared: Path) -> None:
    go = shared / "go"
    first = backend.submit(script(f'until [ -e {go} ]; do sleep 0.1; done; exit "$(cat {go})"', user="me", name="one"))
    second = backend.submit(script("true", after=first.id, name="two"))
    [found] = [job for job in backend.list() if job.id == second.id]
    assert (found.state, found.user) == ("PENDING", "")
    assert backend.status(first.id).user == "me"
    assert abs((backend.status(first.id).submitted or 0) - time.time()) < 3600
    go.write_text("0")
    one, two = backend.wait(first.id, 300), backend.wait(second.id, 300)
    assert (one.ok, two.ok) == (True, True)
    assert (two.stages[0].started or 0) >= (one.stages[0].ended or 0)
    third = backend.submit(script("true", after=first.id, name="three"))
    assert backend.wait(third.id, 300).ok, "that one has completed already"
    go.unlink()
    failing = backend.submit(script(f'until [ -e {go} ]; do sleep 0.1; done; exit "$(cat {go})"', name="four"))
    never = backend.submit(script("true", after=failing.id, name="five"))
    go.write_text("3")
    assert backend.wait(failing.id, 300).state == "FAILED"
    assert backend.wait(never.id, 300).state == "CANCELLED"
    for after, message in {
        failing.id: "has not completed, and does not run",
        "none-1": "there is no job none-1",
    }.items():
        with pytest.raises(SubmitError, match=message):
            backend.submit(script("true", after=after, name="six"))
    assert backend.status(failing.id).state == "FAILED", "a refusal leaves the other job alone"
