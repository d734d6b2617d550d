"""Jobs on a real Slurm whose shared file system has no space left, or something else in a log's place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.test_slurm import log, script
from tests.support import file_system, fill
from tests.told import told
from trainium_cdk.jobs import JobError, SlurmBackend


def test_a_full_disk_at_the_start_is_reported(backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    """Its first write fails with ENOSPC, before it can write down anything of itself."""
    slurm.run(["scontrol", "update", "partitionname=compute1", "state=DOWN"])
    job = backend.submit(script("true"))
    with file_system(state := shared / "trn/jobs" / job.id / "state", "4k"):
        fill(state)
        slurm.run(["scontrol", "update", "partitionname=compute1", "state=UP"])
        ended = backend.wait(job.id, 600)
    assert ended.state == "FAILED"
    told("full disk", "ParallelCluster", "trn status", ended.current.reason)
    assert "No space left on device" in log(backend, job.id)
    token = job.id.removeprefix("run-")
    assert backend.submit(script("true"), token).resubmitted == ("train",)
    assert backend.wait(job.id, 600).ok


def test_a_log_that_is_a_pipe_is_not_opened(backend: SlurmBackend, shared: Path) -> None:
    """Reading it would wait for ever."""
    job = backend.submit(script("true"))
    assert backend.wait(job.id, 600).ok
    file = shared / "trn/jobs" / job.id / "logs/train.log"
    file.unlink()
    os.mkfifo(file)
    for follow in (False, True):
        with pytest.raises(JobError, match=f"the log of {job.id}'s train is not a regular file, and was not opened"):
            list(backend.logs(job.id, follow=follow))
