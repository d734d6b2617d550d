"""Jobs on a real Slurm whose shared file system has no space left, or something else in a log's place."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.test_slurm import log, script
from tests.runner.training import TRAINS
from tests.support import completed, file_system, fill
from tests.told import told
from trainium_cdk.jobs import JobError, Script, SlurmBackend, Submitted
from trainium_cdk.runner.spec import Place


def test_a_full_disk_at_the_start_is_reported(backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    """Its first write fails with ENOSPC, before it can write down anything of itself."""
    slurm.run(["scontrol", "update", "partitionname=compute1", "state=DOWN"])
    job = backend.submit(script("true"))
    with file_system(state := shared / "trn/jobs" / job.id / "state", "4k"):
        fill(state)
        slurm.run(["scontrol", "update", "partitionname=compute1", "state=UP"])
        ended = backend.wait(job.id, 600)
    assert ended.state == "FAILED"
    assert ended.current.reason.startswith(
        "it ended before it could write its state: the shared file system may have been full"
    )
    assert "No space left on device" in log(backend, job.id)
    token = job.id.removeprefix("run-")
    assert backend.submit(script("true"), token).resubmitted == ("train",)
    assert backend.wait(job.id, 600).ok


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("output", "OSError: [Errno 28] No space left on device. A disk or file system is full. Delete old"),
        ("", "it could not write its state: the shared file system /efs is full. Free space, then submit it again"),
    ],
    ids=["checkpoints", "all"],
)
def test_a_disk_that_checkpoints_fill(
    place: str, why: str, backend: SlurmBackend, slurm: LocalSlurm, shared: Path, tmp_path: Path
) -> None:
    """Of the checkpoints alone, or of all that jobs have: then the job could not record why it ended, and is sent again by its token. Nothing that is
    half written is gone on from."""

    def send(**fields: Any) -> Submitted:
        env = {"WEIGHTS": "1500000", "STEPS": "60", "SLOW": "0.05"}
        job = Script(filename="train.py", content=TRAINS.encode(), nodes=2, env=env, **fields)
        made = backend.render(job, f"fills-{place or 'all'}{len(fields)}")
        train = made.spec.stages[-1]
        assert train.program
        assert made.spec.checkpoints
        kept = dataclasses.replace(made.spec.checkpoints, folder="output", pattern="step-*", last="done")
        goes_on = dataclasses.replace(train.program, resume=((Place("checkpoint"),),))
        stages = (*made.spec.stages[:-1], dataclasses.replace(train, program=goes_on))
        return backend.send(
            dataclasses.replace(made, spec=dataclasses.replace(made.spec, checkpoints=kept, stages=stages))
        )[0]

    def partition(state: str) -> None:
        slurm.run(["scontrol", "update", "partitionname=compute1", f"state={state}"])

    (tmp_path / "cluster.json").write_text(backend.cluster.model_dump_json())
    with contextlib.ExitStack() as stack:
        if not place:
            stack.enter_context(file_system(disk := shared / "trn", "8m"))
        partition("DOWN")
        sent = send()
        folder = shared / "trn/jobs" / sent.id
        if place:
            stack.enter_context(file_system(disk := folder / place, "8m"))
        partition("UP")
        ended = backend.wait(sent.id, 300)
        assert ended.state == "FAILED"
        assert why in ended.why
        if not place:
            told("full disk", "ParallelCluster", "trn status", ended.current.reason)
        words = ["status", sent.id, "--cluster", tmp_path / "cluster.json", "--local"]
        assert why in command.trn(words, slurm.node_env()).stderr
        *_, newest, half = sorted((folder / "output").iterdir(), key=lambda one: int(one.name.removeprefix("step-")))
        assert not (half / "done").exists()
        assert (half / "weights").stat().st_size < 1_500_000
        completed(["mount", "-o", "remount,size=64m", disk], check=True)
        again = send(resume_from=sent.id) if place else send()
        assert again.resubmitted == (() if place else ("train",))
        assert backend.wait(again.id, 300).ok
        logs = shared / "trn/jobs" / again.id / "logs"
        said = "".join((logs / f"{stage}.log").read_text() for stage in again.stages)
        assert f"{half} was not written to its end: the one before it is used" in said
        assert said.count(f"begins after step {newest.name.removeprefix('step-')}\n") == 2


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
