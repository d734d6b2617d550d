"""The runner is killed, as by `kill -9`, at each of its steps: before each file that it writes and each program that it starts."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm
from tests.runner.asking import CLUSTER, Head, job, paused
from tests.support import swept
from trainium_cdk.runner.requests import SubmitJobs, write_request
from trainium_cdk.runner.spec import JobSpec

__all__ = ["paused", "slurm"]
KILLED = """
import os, runpy, signal, sys
number, sys.argv, steps = int(sys.argv[1]), sys.argv[2:], []
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink", "fcntl.flock", "subprocess.Popen"}

def step(event, args):
    if event in CHANGES or (event == "open" and args[2] and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        steps.append(f"{event} {args[0] if event == 'subprocess.Popen' else ''}".strip())
        if len(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(step)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(*steps, sep="\\n", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def head(slurm: LocalSlurm) -> Head:
    return Head(slurm)


def submit(head: Head, made: JobSpec, number: int = 0) -> tuple[int, list[str]]:
    """Submit, and be killed before this step; the exit code and, if it was not killed, the steps."""
    python, isolated, *words = head.words()
    done = subprocess.run(
        [python, isolated, "-c", KILLED, str(number), *words],
        input=json.dumps(write_request(CLUSTER, SubmitJobs((made,)))),
        env=head.env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("kind", "each"), swept([("plain", 1), ("chain", 1), ("plain", 5), ("chain", 7)], ("plain", 5), ("chain", 7))
)
def test_a_job_is_submitted_once_whatever_step_is_the_last(
    head: Head, slurm: LocalSlurm, paused: None, kind: str, each: int
) -> None:
    chain = kind == "chain"
    head.submit(job(f"{kind}-{each}-first"))  # makes the folders of a new file system
    code, steps = submit(head, job(f"{kind}-{each}-whole", fetches=chain, files={"a": b"a"}))
    assert code == 0, steps
    programs = [step.split("/")[-1] for step in steps if step.startswith("subprocess")]
    assert [one.split()[-1] for one in programs] == ["sbatch"] * (1 + chain)
    last = [number for number, step in enumerate(steps, 1) if step.startswith("subprocess")]
    for number in sorted({*range(1, len(steps) + 1, each), *last, *(one + 1 for one in last[:-1])}):
        made = job(f"{kind}-{each}-{number}", fetches=chain, files={"a": b"a"})
        assert submit(head, made, number)[0] == -signal.SIGKILL, steps[number - 1]
        [sent] = head.submit(made)
        assert sent.error is None, (steps[number - 1], sent)
        names = [f"PENDING {made.id}:{stage}" for stage in ("prepare", "train") if chain or stage == "train"]
        assert head.rows(made.id) == names, steps[number - 1]
        assert sorted(sent.stages.values()) == sorted(
            slurm.run(["squeue", "-h", "-o", "%A", f"--name={made.id}:prepare,{made.id}:train"]).stdout.split()
        )
        assert head.submit(made) == [replace(sent, existing=True)]
        head.cancel(made.id)
    left = [one.name for one in head.jobs.rglob("*") if one.name.startswith(".") and one.parent.name != "jobs"]
    assert not left, "parts of files"


def test_a_refusal_that_is_killed_leaves_nothing_after_the_next(head: Head, paused: None) -> None:
    made = job("refused-1", require=("/no/such",))
    head.refused(made)
    _, steps = submit(head, made)
    for number in range(1, len(steps) + 1, 4):
        assert submit(head, made, number)[0] == -signal.SIGKILL
        assert "there is no /no/such" in head.refused(made)
        assert not (head.jobs / "refused-1").exists()
