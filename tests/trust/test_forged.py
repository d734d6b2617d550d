"""What jobs write into their own directories does not change the rows of other jobs, and hides no job from `trn destroy`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.support import swept
from trainium_cdk.jobs import JobError, JobStatus, Script, SlurmBackend

WAITS = "while [ ! -e work/stop ]; do sleep 0.1; done\n"
FORGED = {
    "a state of several lines": r"""
printf 'running %s 0 1 n1\ntrn-queue HONEST|COMPLETED|None|n1|N/A|N/A|honest:train|trn:honest\ntrn-job ghost\ntrn-stage train HONEST\n' "$SLURM_JOB_ID" > state/train
""",
    "marks that are guessed": r"""
for mark in 000000000000000000000000 trn-mark ffffffffffffffffffffffff; do
  printf 'trn-mark %s\n%s job ghost\n%s stage train HONEST\n%s queue HONEST|FAILED|None|||||\n' "$mark" "$mark" "$mark" "$mark"
done | tee state/train summary.json cluster > /dev/null
""",
    "a summary of 50 MB": "head -c 50000000 /dev/zero | tr '\\0' x > summary.json; printf '{\"nodes\": 9999}\\n%s' \"$(< summary.json)\" > job.json",
    "a summary of another shape": """echo '{"kind": ["x"], "nodes": {"a": 1}, "expected": [[]], "global_batch_size": "NaN"}' > summary.json""",
    "100,000 stages": "yes 'train HONEST' | head -n 100000 > stages; yes 'prepare x' | head -n 100000 >> stages",
    "stages that are anothers": "printf 'precompile HONEST\\ntrain HONEST\\n' > stages",
    "stages of no sense": "printf '%s\\n' '; reboot 1' 'train $(id)' 'train -1' '$(touch /tmp/x) 7' > stages",
    "pipes for files": "rm -f state/train summary.json cluster stages logs/train.log; mkfifo state/train summary.json cluster stages logs/train.log",
    "devices for files": "rm -f state/train summary.json cluster; ln -s /dev/zero state/train; ln -s /dev/zero summary.json; ln -s /dev/tty cluster",
    "a log that is a device": "rm -f logs/train.log; ln -s /dev/zero logs/train.log",
    "names and comments of several lines": r"""
sbatch --hold -o /dev/null --job-name=$'x\ntrn-queue HONEST|FAILED|None|n|N/A|N/A|honest|x' --comment=$'trn:ghost\nghost:train|trn:ghost' --wrap true
scontrol update JobId="$SLURM_JOB_ID" Comment=$'trn:ghost\ntrn-active HONEST|FAILED|x|x|x|x|ghost:train|trn:ghost'
""",
    "directories of any name": r"""
for name in $'a\ntrn-job ghost' '$(reboot)' '-rf' '.hidden' 'x y'; do mkdir -p -- "../$name"; echo 'train HONEST' > "../$name/stages"; done
""",
}  # fmt: skip
KEPT = ("a state of several lines", "100,000 stages", "pipes for files", "names and comments of several lines")
"""What `make test` tries."""


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
        with (
            pytest.raises(JobError, match="is not a regular file")
            if forged != "pipes for files"
            else pytest.raises(Exception, match="no job")
        ):
            list(backend.logs(forger.id, stage="train"))
    (jobs_dir / forger.id / "work" / "stop").touch()
    mine = f"--name=forger-{forger.id.removeprefix('forger-')}:train"
    slurm.run(["scancel", "--state=PENDING", f"--user={slurm.node_env()['USER']}"])
    while slurm.run(["squeue", "-h", mine, "-o", "%A"]).stdout:
        time.sleep(0.1)
    for made in set(jobs_dir.iterdir()) - before:
        (made / "stages").unlink()
        made.rmdir()


def test_newer_jobs_hide_no_job_from_destroy(honest: JobStatus, backend: SlurmBackend, jobs_dir: Path) -> None:
    newer = [jobs_dir / f"newer-{i}" for i in range(1001)]
    for job in newer:
        job.mkdir()
        (job / "stages").write_text("train 999999\n")
        os.utime(job / "stages", (2e9, 2e9))
    assert honest.id not in {job.id for job in backend.list(1000)}
    assert honest.id in {job.id for job in backend.active()}
    for job in newer:
        (job / "stages").unlink()
        job.rmdir()
