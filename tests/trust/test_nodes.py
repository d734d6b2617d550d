"""Nodes that die, and graphs that do not compile."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.support import swept, until
from trainium_cdk.jobs import BertLarge, Script, SlurmBackend

STEPS, HELD = 45, 20  # training does not begin step 20 before its node is dead


def text(backend: SlurmBackend, id: str, stage: str) -> str:
    return b"".join(c.data for c in backend.logs(id, stage=stage)).decode(errors="replace")


@pytest.fixture
def data(jobs_dir: Path) -> str:
    folder = jobs_dir.parents[1] / "shards"
    folder.mkdir(exist_ok=True)
    for i in range(64):
        (folder / f"part_training_{i}.hdf5").write_bytes(os.urandom(512))
    return "/efs/shards"


@pytest.mark.parametrize("dies", swept(["first", "last", "first-in-order", "last-in-order"], "last-in-order"))
def test_training_resumes_from_its_checkpoint_when_a_node_dies(
    backend: SlurmBackend, slurm: LocalSlurm, jobs_dir: Path, tmp_path: Path, data: str, dies: str
) -> None:
    """The node's daemon and all its processes are killed, at once or as in a shutdown, its daemon first; Slurm is notified
    as by ParallelCluster's daemon, and a new machine takes the node's name. A checkpoint that was being written just then is
    skipped."""
    go_on = tmp_path / "go-on"
    job = backend.submit(
        BertLarge(
            nodes=2,
            optimizer="adamw",
            run_steps=STEPS,
            data=data,
            env={"TRN_SANDBOX_HOLD": f"{HELD}:{go_on}"},
            name=dies,
        )
    )
    output = jobs_dir / job.id / "output"
    assert until(lambda: re.search(rf"\(\d+, {HELD - 1}\) step_loss", text(backend, job.id, "train")))
    running = next(s for s in backend.status(job.id).stages if s.name == "train")
    names = slurm.run(["scontrol", "show", "hostnames", running.nodes]).stdout.split()
    node = names[0] if dies.startswith("first") else names[-1]
    if dies.endswith("in-order"):
        slurm.end_node(node)
        assert until(
            lambda: "a node is shutting down: waiting for Slurm to restart train" in text(backend, job.id, "train")
        )
        assert backend.status(job.id).state == "RUNNING"
    slurm.kill_node(node)
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=hardware"])
    (output / "ckpt_999.pt").write_bytes(b"PK\3\4" + bytes(5000))
    go_on.touch()
    slurm.replace_node(node)
    ended = backend.wait(job.id, 600)
    printed = text(backend, job.id, "train")
    assert ended.ok, (ended.stages[-1], slurm.run(["scontrol", "show", "job", job.stages["train"]]).stdout)
    resumed = re.findall(r"Worker 0 resuming from checkpoint \S*/ckpt_(\d+)\.pt at step (\d+)", printed)
    assert len(resumed) == 1, resumed
    assert resumed[0][0] == resumed[0][1]
    assert "ckpt_999.pt was not written to its end" in printed
    lives = printed.split("Worker 0 resuming from checkpoint")
    first, second = ([int(s) for s in re.findall(r"\(\d+, (\d+)\) step_loss", life)] for life in lives)
    at = int(resumed[0][1])
    assert at >= 10  # not from the beginning
    assert first == list(range(1, HELD))
    assert second == list(range(at + 1, STEPS + 1))
    assert running.nodes == ended.stages[-1].nodes  # where its graphs are


@pytest.mark.sweep
def test_training_does_not_start_if_compilation_fails(backend: SlurmBackend, jobs_dir: Path, data: str) -> None:
    job = backend.submit(
        BertLarge(nodes=2, optimizer="adamw", data=data, cache="empty", env={"TRN_SANDBOX_FAIL": "precompile"})
    )
    ended = backend.wait(job.id, 600)
    stages = {s.name: (s.state, s.reason) for s in ended.stages}
    assert stages["precompile"] == ("FAILED", "exit code 1, on node 0 first")
    assert stages["train"] == ("CANCELLED", "did not run: precompile did not complete")
    assert text(backend, job.id, "train") == ""
    assert not (jobs_dir / job.id / "output" / "results.json").exists()


@pytest.mark.sweep
def test_a_stopped_job_is_distinguished_from_a_failed_one(
    backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path
) -> None:
    """With scancel, past `trn`, and after Slurm has forgotten the job."""
    job = backend.submit(Script(filename="long.sh", content=b"sleep 3600\n"))
    assert until(
        lambda: "sleep" in slurm.run(["ps", "-eo", "args"]).stdout and backend.status(job.id).state == "RUNNING"
    )
    assert until(lambda: text(backend, job.id, "train"))
    slurm.run(["scancel", job.stages["train"]])
    assert until(lambda: backend.status(job.id).done)
    assert backend.status(job.id).state == "CANCELLED"
    env = forgetful(slurm, tmp_path)
    backend.transport._env = env  # type: ignore[attr-defined]
    assert (backend.status(job.id).state, backend.status(job.id).stages[0].exit_code) == ("CANCELLED", 143)


def forgetful(slurm: LocalSlurm, folder: Path, printed: str = "Invalid job id specified") -> dict[str, str]:
    """The head node's environment with a Slurm that knows no job."""
    (folder / "squeue").write_text(f"#!/bin/sh\necho 'slurm_load_jobs error: {printed}' >&2\nexit 1\n")
    (folder / "squeue").chmod(0o755)
    env = slurm.node_env()
    return {**env, "PATH": f"{folder}:{env['PATH']}"}


@pytest.mark.sweep
def test_an_unreachable_controller_ends_no_job(
    backend: SlurmBackend, slurm: LocalSlurm, jobs_dir: Path, tmp_path: Path
) -> None:
    """The state file contains `running`, and Slurm does not respond: that is no failure of the job. The follower waits, and continues."""
    job = backend.submit(
        Script(filename="long.sh", content=b"echo one; until [ -e go-on ]; do sleep 0.1; done; echo two\n")
    )
    assert until(lambda: "one" in text(backend, job.id, "train"))
    away = forgetful(slurm, tmp_path, "Unable to contact slurm controller (connect failure)")
    backend.transport._env = away  # type: ignore[attr-defined]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            backend.transport._env = slurm.node_env()  # type: ignore[attr-defined]
            (jobs_dir / job.id / "work" / "go-on").touch()
        time.sleep(0.2)

    backend.sleep = sleep
    printed = b"".join(c.data for c in backend.logs(job.id, stage="train", follow=True))
    assert printed.count(b"one\n") == printed.count(b"two\n") == 1
    assert backend.status(job.id).ok
    assert pauses[1] > pauses[0]
