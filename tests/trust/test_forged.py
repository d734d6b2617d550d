"""What jobs write into their own directories does not change the rows of other jobs, and hides no job from `trn destroy`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.support import swept, table
from trainium_cdk.jobs import JobError, JobStatus, Script, SlurmBackend

WAITS = "while [ ! -e work/stop ]; do sleep 0.1; done\n"
FORGED = table(__file__, "forged")
KEPT = ("a state of another stage", "names and comments of several lines")
"""What `make scenes` tries."""


@pytest.fixture
def honest(backend: SlurmBackend, jobs_dir: Path) -> Iterator[JobStatus]:
    """A job that runs until the test has ended."""
    sent = backend.submit(Script(filename="run.sh", content=b"cd ..\n" + WAITS.encode(), name="honest"))
    yield running(backend, sent.id)
    (jobs_dir / sent.id / "work" / "stop").touch()
    assert backend.wait(sent.id, 600).ok


def running(backend: SlurmBackend, id: str) -> JobStatus:
    while (status := backend.status(id)).state == "PENDING":
        time.sleep(0.1)
    return status


@pytest.mark.parametrize("forged", swept(FORGED, *KEPT))
def test_no_job_changes_the_row_of_another(
    forged: str, honest: JobStatus, backend: SlurmBackend, slurm: LocalSlurm, jobs_dir: Path, tmp_path: Path
) -> None:
    number = honest.stages[0].number
    body = f"cd ..\n{FORGED[forged].replace('HONEST', number)}\ntouch work/forged\n{WAITS}"
    forger = backend.submit(Script(filename="run.sh", content=body.encode(), name="forger"))
    before = set(jobs_dir.iterdir())
    while not (jobs_dir / forger.id / "work" / "forged").exists():
        time.sleep(0.1)
    listed = {job.id: job for job in backend.list(1000)}
    assert listed[honest.id] == honest == backend.status(honest.id)
    assert "ghost" not in listed
    active = {job.id: [stage.number for stage in job.stages] for job in backend.active()}
    assert active[honest.id] == [number]
    assert "ghost" not in active
    if "log" in forged or "pipe" in forged:
        with pytest.raises(JobError, match="is not a regular file"):
            list(backend.logs(forger.id, stage="train"))
    (jobs_dir / forger.id / "work" / "stop").touch()
    mine = f"--name=forger-{forger.id.removeprefix('forger-')}:train"
    slurm.run(["scancel", "--state=PENDING", f"--user={slurm.node_env()['USER']}"])
    while slurm.run(["squeue", "-h", mine, "-o", "%A"]).stdout:
        time.sleep(0.1)
    for made in set(jobs_dir.iterdir()) - before:
        (made / "submitted.json").unlink()
        made.rmdir()


@pytest.mark.sweep
def test_newer_jobs_hide_no_job_from_destroy(honest: JobStatus, backend: SlurmBackend, jobs_dir: Path) -> None:
    newer = [jobs_dir / f"newer-{i}" for i in range(1001)]
    for job in newer:
        job.mkdir()
        (job / "submitted.json").write_text('{"numbers": {"train": "999999"}}')
        os.utime(job / "submitted.json", (2e9, 2e9))
    assert honest.id not in {job.id for job in backend.list(1000)}
    assert honest.id in {job.id for job in backend.active()}
    for job in newer:
        (job / "submitted.json").unlink()
        job.rmdir()
