"""How a stage ends where Slurm fails: with programs in the place of Slurm's."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.runner.stages import program
from trainium_cdk.runner import layout, records
from trainium_cdk.runner.records import State
from trainium_cdk.runner.spec import JobSpec, Slurm, StageSpec

ROOM = Path(__file__).resolve().parents[2] / "constructs/trainium_cdk"
_RUN = """
import sys
from runner.work import stage, tasks
tasks.NFS_SECONDS = tasks.KNOWN_SECONDS = 2
stage.main(*sys.argv[1:])
"""
RUN = "41-0"


@pytest.mark.parametrize(
    ("limit", "count", "code"), [(None, "", 0), (None, "9", 0), (2, "", 0), (2, "2", 0), (2, "3", 1), (0, "3", 0)]
)
def test_restarts_end(limit: int | None, count: str, code: int, tmp_path: Path) -> None:
    run = stage(tmp_path, succeed(tmp_path, 4, count or "0"), restarts=limit, SLURM_RESTART_COUNT=count)
    assert run.returncode == code, run.stdout
    assert ("restarted 2 times already, the most that --restarts allows" in run.stdout) is (code == 1)


@pytest.mark.parametrize(
    ("end", "code", "why"),
    [
        ("exit 3", 3, ""),
        ("kill -TERM $PPID; sleep 1", 143, "CANCELLED"),
        ("(sleep 1.5; kill -TERM $PPID) & exit 143", 143, "CANCELLED"),  # srun was notified first
        ("kill -USR1 $PPID; exec sleep 3", 143, ""),
        ("kill -9 $$", 137, ""),
        ("exit 139", 139, ""),
    ],
)
def test_how_it_ended(end: str, code: int, why: str, tmp_path: Path) -> None:
    begun = f"touch {tmp_path}/state/train.{RUN}.0.begun; "
    run = stage(tmp_path, begun + end, squeue=r"printf 'run-1:train\037None\n'")
    assert run.returncode == code, run.stdout
    assert ended(tmp_path) == ("ended", "41", code, "n-[1-2]", why)


CONFIG = "case \"$*\" in *config) echo 'RequeueExit = {}'; echo 'RequeueExitHold = {}' ;; *--oneliner) echo ' NodeAddr=127.0.0.1' ;; *) echo n-1 ;; esac"


@pytest.mark.parametrize(
    ("end", "config", "reason", "kept"),
    [
        ("exit 3", ("(null)", "(null)"), "None", False),
        ("exit 3", ("3-5", "(null)"), "None", True),  # Slurm starts it again
        ("exit 3", ("(null)", "3"), "None", True),
        ("kill -TERM $PPID; sleep 1", ("(null)", "(null)"), "TimeLimit", False),
        ("kill -TERM $PPID; sleep 1", ("(null)", "(null)"), "None", True),  # cancelled, or started again: Slurm knows
    ],
)
def test_variables_are_deleted_unless_slurm_starts_it_again(
    end: str, config: tuple[str, str], reason: str, kept: bool, tmp_path: Path
) -> None:
    begun = f"touch {tmp_path}/state/train.{RUN}.0.begun; "
    stage(tmp_path, begun + end, squeue=rf"printf 'run-1:train\037{reason}\n'", scontrol=CONFIG.format(*config))
    assert (tmp_path / "env.json").exists() is kept


@pytest.mark.parametrize(
    ("squeue", "why"),
    [
        (r"printf 'run-1:train\037TimeLimit\n'", "TIMEOUT"),
        (r"printf 'run-1:train\037None\n'", "CANCELLED"),
        (r"printf 'another:train\037None\n'", "LOST"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "LOST"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "CANCELLED"),
    ],
)
def test_why_it_was_stopped(squeue: str, why: str, tmp_path: Path) -> None:
    stage(tmp_path, f"touch {tmp_path}/state/train.{RUN}.0.begun; kill -TERM $PPID; exit 143", squeue=squeue)
    assert ended(tmp_path) == ("ended", "41", 143, "n-[1-2]", why)


def test_the_code_is_that_of_the_node_that_failed_first(tmp_path: Path) -> None:
    failure = json.dumps(dataclasses.asdict(records.Failure(1, 7, "boom")))
    run = stage(
        tmp_path,
        f"echo '{failure}' > {tmp_path}/state/train.{RUN}.failed.json; touch {tmp_path}/state/train.{RUN}.0.begun; exit 143",
    )
    assert run.returncode == 7
    assert (ended(tmp_path), records.state(tmp_path, "train").failed_node) == (("ended", "41", 7, "n-[1-2]", ""), 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(("succeeded", "code"), [(4, 0), (3, 1)])
def test_success_is_that_of_every_task_and_not_only_of_srun(succeeded: int, code: int, tmp_path: Path) -> None:
    """srun returns 0 now and then when a node fails: no task of that node has reported an exit code."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/train.40-0.9.done").touch()  # of an earlier attempt
    run = stage(tmp_path, succeed(tmp_path, succeeded))
    assert run.returncode == code
    assert ended(tmp_path)[2] == code
    assert ("only 3 of 4 tasks" in run.stdout) is (code == 1)


@pytest.mark.parametrize(
    ("failures", "begun", "knows", "code", "started", "why"),
    [
        (0, False, r"RUNNING\037n-[1-2]", 0, 1, ""),
        (2, False, r"RUNNING\037n-[1-2]", 0, 3, ""),
        (9, False, r"RUNNING\037n-[1-2]", 1, 3, ""),
        (9, True, r"RUNNING\037n-[1-2]", 1, 1, ""),  # what ran is not run again
        (9, False, r"PENDING\037", 1, 1, "LOST"),  # the controller has forgotten that the stage began
        (9, False, r"RUNNING\037n-[3-4]", 1, 1, "LOST"),  # and has started it elsewhere
    ],
)
def test_srun_is_tried_again_only_if_no_task_began(
    failures: int, begun: bool, knows: str, code: int, started: int, why: str, tmp_path: Path
) -> None:
    """srun fails if Slurm's controller crashes while it creates the step: nothing has run then."""
    count = f"{tmp_path}/started"
    begins = f"touch {tmp_path}/state/train.{RUN}.0.begun; " if begun else ""
    fails = f"echo again >> {count}; {begins}if [ $(wc -l < {count}) -le {failures} ]; then exit 1; fi; "
    run = stage(tmp_path, fails + succeed(tmp_path, 4), squeue=rf"printf 'run-1:train\037{knows}\n'")
    assert run.returncode == code, run.stdout
    assert Path(count).read_text().count("again") == started
    assert ended(tmp_path)[4] == why


@pytest.mark.parametrize("forwarded", [False, True])
def test_the_last_lines_of_the_node_that_failed_first_are_in_the_log(forwarded: bool, tmp_path: Path) -> None:
    """srun ends the tasks of the other nodes, and may drop what it has not forwarded yet."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/train.1.log"
    log.write_text("an earlier attempt\n")
    (tmp_path / "logs/train.log").write_text("1: begins\n" + "1: Traceback: boom\n0: ends\n" * forwarded)
    failure = json.dumps(dataclasses.asdict(records.Failure(1, 3, "boom")))
    fails = f"echo '1: begins'; touch {tmp_path}/state/train.{RUN}.0.begun; echo '{failure}' > {tmp_path}/state/train.{RUN}.failed.json; "
    run = stage(tmp_path, fails + f"printf 'begins\\nTraceback: boom\\n' >> {log}; exit 3")
    missing = [] if forwarded else ["1: begins", "1: Traceback: boom"]
    assert run.stdout.splitlines()[2:] == [f"trn: node 1 failed first; its own log is {log}", *missing]
    assert ended(tmp_path)[2] == 3


def test_a_controller_that_is_being_restarted_is_waited_for(tmp_path: Path) -> None:
    once = f'if [ ! -e {tmp_path}/asked ]; then touch {tmp_path}/asked; echo "Unable to contact slurm controller" >&2; exit 1; fi; '
    scontrol = (
        f'case "$*" in *--oneliner) {once}echo "x NodeAddr=127.0.0.9 y" ;; *hostnames*) echo n-1 ;; *) false ;; esac'
    )
    run = stage(tmp_path, f'echo "master $MASTER_ADDR"; {succeed(tmp_path, 4)}', scontrol=scontrol)
    assert run.returncode == 0, run.stdout
    assert "trn: Slurm's controller does not answer: Unable to contact slurm controller" in run.stdout
    assert "master 127.0.0.9" in run.stdout


def test_a_node_that_shuts_down_is_left_to_slurm(tmp_path: Path) -> None:
    """Slurm ends the script, and starts the stage again; it would not, had the script failed before."""
    scontrol = 'case "$*" in *--oneliner) echo "x NodeAddr=127.0.0.1 Port=1 y" ;; *config) echo "SlurmdPort = 6818" ;; *hostnames*) echo n-1 ;; *) false ;; esac'
    begun = (
        f"touch {tmp_path}/state/train.{RUN}.0.begun; (sleep 2; kill -TERM $PPID; sleep 1; kill -TERM $PPID) & exit 9"
    )
    run = stage(tmp_path, begun, scontrol=scontrol, squeue=r"printf 'run-1:train\037NodeFail\n'")
    assert "a node is shutting down: waiting for Slurm to restart train" in run.stdout
    assert ended(tmp_path)[2] == 143


def test_a_damaged_record_of_the_job_is_told(tmp_path: Path) -> None:
    run = stage(tmp_path, "exit 0", record=b"{")
    assert (run.returncode, run.stdout.count("\n"), run.stderr) == (1, 1, "")
    assert f"trn: the record of the job, {tmp_path}/job.json, is damaged" in run.stdout


def ended(job: Path) -> tuple[str, str, int | None, str, str]:
    found = records.state(job, "train")
    assert isinstance(found, State)
    return found.state, found.number, found.code, found.nodes, found.why


def succeed(job: Path, number: int, attempt: str = "0") -> str:
    return "touch " + " ".join(f"{job}/state/train.41-{attempt}.{n}.done" for n in range(number))


def stage(
    job: Path, srun: str, *, restarts: int | None = None, **given: str | bytes
) -> subprocess.CompletedProcess[str]:
    """The stage `train`, which is Slurm's job 41, with two tasks on each of its two nodes; with scripts in the place of programs."""
    made = JobSpec(
        "run-1",
        "script",
        (StageSpec("train", 2, program("true"), processes=2),),
        slurm=Slurm("q", "q", "c", restarts=restarts),
    )
    layout.lay_out(job, made)
    (job / "submitted.json").write_text(json.dumps({"numbers": {"train": "41"}}))
    if "record" in given:
        (job / "job.json").write_bytes(given.pop("record"))  # type: ignore[arg-type]
    scripts: Mapping[str, str | bytes] = {
        "srun": srun,
        "scontrol": 'case "$*" in *--oneliner) echo " NodeAddr=127.0.0.1" ;; *hostnames*) echo n-1 ;; *) false ;; esac',
        "squeue": "false",
        **{name: one for name, one in given.items() if name.islower()},
    }
    (job / "bin").mkdir()
    for name, script in scripts.items():
        (job / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")  # type: ignore[str-bytes-safe]
        (job / "bin" / name).chmod(0o755)
    env = {
        **os.environ, "PYTHONPATH": str(ROOM), "PATH": f"{job / 'bin'}:{os.environ['PATH']}", "SLURM_JOB_ID": "41", "SLURM_JOB_NAME": "run-1:train",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n-[1-2]", "SLURMD_NODENAME": "n-1", **{k: str(v) for k, v in given.items() if k.isupper()},
    }  # fmt: skip
    words = [os.environ.get("TRN_TEST_PYTHON", sys.executable), "-c", _RUN, str(job), "train"]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
