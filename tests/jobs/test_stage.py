"""What a stage records at its end, whichever process is notified first."""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("limit", "count", "code"),
    [("", "", 0), ("", "9", 0), ("2", "", 0), ("2", "2", 0), ("2", "3", 1)],
)
def test_restarts_end(limit: str, count: str, code: int, tmp_path: Path) -> None:
    for name in ("state", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "stages").write_text("train 41\n")  # what the submission has written down
    shell = str(files("trainium_cdk.jobs").joinpath("shell", "stage.sh"))
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "n-1"}
    env |= {"SLURM_RESTART_COUNT": count} if count else {}
    script = f'job=$1 stage=train restarts={limit}; . "$2"; begin; echo trains'
    run = subprocess.run(
        ["bash", "-c", script, "stage", str(tmp_path), shell], env=env, capture_output=True, text=True, check=False
    )
    assert (run.returncode, "trains" in run.stdout) == (code, code == 0)
    assert ("restarted 2 times already, the most that --restarts allows" in run.stderr) is (code == 1)


@pytest.mark.parametrize(
    ("end", "code", "reason"),
    [
        ("true", 0, ""),
        ("(exit 3)", 3, ""),
        ("kill -TERM $$; sleep 1", 143, "CANCELLED"),
        ("(sleep 0.2; kill -TERM $$) & exit 143", 143, "CANCELLED"),  # srun was notified first
        ("echo 7 node 1 first > $job/state/train.failed; exit 143", 7, "node 1 first"),
        ("exit 139", 139, ""),
    ],
)
def test_how_it_ended(end: str, code: int, reason: str, tmp_path: Path) -> None:
    for name in ("state", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "stages").write_text("train 41\n")  # what the submission has written down
    shell = str(files("trainium_cdk.jobs").joinpath("shell", "stage.sh"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/squeue").write_text('#!/bin/sh\necho "$SLURM_JOB_NAME None"\n')
    (tmp_path / "bin/squeue").chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n-[1-2]"}
    env |= {"SLURM_JOB_ID": "41", "SLURM_JOB_NAME": "job-train"}
    script = f'job=$1 stage=train; . "$2"; begin; {end}'
    subprocess.run(["bash", "-c", script, "stage", str(tmp_path), shell], env=env, capture_output=True, check=False)
    event, number, exit_code, _, nodes, *why = (tmp_path / "state" / "train").read_text().split()
    assert (event, number, int(exit_code), nodes, " ".join(why)) == ("ended", "41", code, "n-[1-2]", reason)


@pytest.mark.parametrize(("succeeded", "code"), [(4, 0), (3, 1)])
def test_success_is_that_of_every_task_and_not_only_of_srun(succeeded: int, code: int, tmp_path: Path) -> None:
    """srun returns 0 now and then when a node fails: no task of that node has reported an exit code."""
    for name in ("state", "logs", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "stages").write_text("train 41\n")
    (tmp_path / "state" / "train.task.9").touch()  # of an earlier attempt
    shell = str(files("trainium_cdk.jobs").joinpath("shell", "stage.sh"))
    files_of_tasks = " ".join(f"{tmp_path}/state/train.task.{n}" for n in range(succeeded))
    for program, does in (("srun", f"touch {files_of_tasks}"), ("sleep", "true"), ("scontrol", "false")):
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n-[1-2]", "SLURM_JOB_ID": "41"}
    env |= {"SLURM_JOB_NAME": "job-train", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "2"}
    script = 'job=$1 stage=train; . "$2"; begin; launch'
    run = subprocess.run(
        ["bash", "-c", script, "stage", str(tmp_path), shell], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == code
    assert (tmp_path / "state" / "train").read_text().split()[:3] == ["ended", "41", str(code)]
    assert ("only 3 of 4 tasks" in run.stderr) is (code == 1)
