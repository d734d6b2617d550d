"""What a stage records at its end, whichever process is notified first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support import completed


@pytest.mark.parametrize(
    ("limit", "count", "code"),
    [("", "", 0), ("", "9", 0), ("2", "", 0), ("2", "2", 0), ("2", "3", 1)],
)
def test_restarts_end(limit: str, count: str, code: int, tmp_path: Path) -> None:
    counted = {"SLURM_RESTART_COUNT": count} if count else {}
    run = stage(tmp_path, f"restarts={limit}; begin; echo trains", **counted)
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
    stage(tmp_path, f"begin; {end}", {"squeue": 'echo "$SLURM_JOB_NAME None"'})
    event, number, exit_code, _, nodes, *why = (tmp_path / "state" / "train").read_text().split()
    assert (event, number, int(exit_code), nodes, " ".join(why)) == ("ended", "41", code, "n-[1-2]", reason)


@pytest.mark.parametrize(("succeeded", "code"), [(4, 0), (3, 1)])
def test_success_is_that_of_every_task_and_not_only_of_srun(succeeded: int, code: int, tmp_path: Path) -> None:
    """srun returns 0 now and then when a node fails: no task of that node has reported an exit code."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "train.task.9").touch()  # of an earlier attempt
    run = launched(tmp_path, f"touch {tasks(tmp_path, succeeded)}", squeue="false")
    assert run.returncode == code
    assert (tmp_path / "state" / "train").read_text().split()[:3] == ["ended", "41", str(code)]
    assert ("only 3 of 4 tasks" in run.stderr) is (code == 1)


@pytest.mark.parametrize(
    ("failures", "begun", "knows", "code", "started", "reason"),
    [
        (0, False, "RUNNING n-[1-2]", 0, 1, []),
        (2, False, "RUNNING n-[1-2]", 0, 3, []),
        (9, False, "RUNNING n-[1-2]", 1, 3, []),
        (9, True, "RUNNING n-[1-2]", 1, 1, []),  # what ran is not run again
        (9, False, "PENDING ", 1, 1, ["LOST"]),  # the controller has forgotten that the stage began
        (9, False, "RUNNING n-[3-4]", 1, 1, ["LOST"]),  # and has started it elsewhere
    ],
)
def test_srun_is_tried_again_only_if_no_task_began(
    failures: int, begun: bool, knows: str, code: int, started: int, reason: list[str], tmp_path: Path
) -> None:
    """srun fails if Slurm's controller crashes while it creates the step: nothing has run then."""
    count = f"{tmp_path}/started"
    begins = f"touch {tmp_path}/state/train.begun; " if begun else ""
    fails = f"echo again >> {count}; {begins}if [ $(wc -l < {count}) -le {failures} ]; then exit 1; fi; "
    run = launched(tmp_path, fails + f"touch {tasks(tmp_path, 4)}", squeue=f"echo job-train {knows}")
    assert run.returncode == code, run.stderr
    assert Path(count).read_text().count("again") == started
    assert (tmp_path / "state" / "train").read_text().split()[5:] == reason


@pytest.mark.parametrize("forwarded", [False, True])
def test_the_last_lines_of_the_node_that_failed_first_are_in_the_log(forwarded: bool, tmp_path: Path) -> None:
    """srun ends the tasks of the other nodes, and may drop what it has not forwarded yet."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/train.1.log"
    log.write_text("an earlier attempt\n")
    (tmp_path / "logs/train.log").write_text("1: begins\n" + "1: Traceback: boom\n0: ends\n" * forwarded)
    fails = f"echo '1: begins'; touch {tmp_path}/state/train.begun; echo '3 1' > {tmp_path}/state/train.failed; "
    run = launched(tmp_path, fails + f"printf 'begins\\nTraceback: boom\\n' >> {log}; exit 3", squeue="true")
    assert run.returncode == 3, run.stderr
    missing = [] if forwarded else ["1: begins", "1: Traceback: boom"]
    assert run.stdout.splitlines()[2:] == [f"trn: node 1 failed first; its own log is {log}", *missing]
    assert (tmp_path / "state/train").read_text().split()[:3] == ["ended", "41", "3"]


def tasks(job: Path, number: int) -> str:
    return " ".join(f"{job}/state/train.task.{n}" for n in range(number))


def launched(job: Path, srun: str, *, squeue: str) -> subprocess.CompletedProcess[str]:
    """With two tasks on each of its nodes."""
    scontrol = 'case "$*" in *--oneliner) echo " NodeAddr=127.0.0.1" ;; *) false ;; esac'
    programs = {"srun": srun, "sleep": "true", "scontrol": scontrol, "squeue": squeue}
    return stage(job, "begin; launch", programs, SLURM_NTASKS_PER_NODE="2")


def stage(job: Path, does: str, programs: Mapping[str, str] = {}, **env: str) -> subprocess.CompletedProcess[str]:
    """The stage `train`, which is Slurm's job 41 on two nodes; with scripts in the place of programs."""
    for name in ("state", "logs", "bin"):
        (job / name).mkdir(exist_ok=True)
    (job / "stages").write_text("train 41\n")  # what the submission has written down
    for program, script in programs.items():
        (job / "bin" / program).write_text(f"#!/bin/sh\n{script}\n")
        (job / "bin" / program).chmod(0o755)
    env |= {"SLURM_JOB_ID": "41", "SLURM_JOB_NAME": "job-train", "SLURM_JOB_NUM_NODES": "2"}
    env |= {"SLURM_JOB_NODELIST": "n-[1-2]", "SLURMD_NODENAME": "n-1", "PATH": f"{job / 'bin'}:{os.environ['PATH']}"}
    shell = str(files("trainium_cdk.jobs").joinpath("shell", "stage.sh"))
    command = ["bash", "-c", f'job=$1 stage=train; . "$2"; {does}; finished=yes', "stage", str(job), shell]
    return completed(command, env=env)
