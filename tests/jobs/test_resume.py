"""Going on from another job's checkpoints: what is refused before anything is sent, and on a real Slurm. What `prepare` copies: tests/runner/test_resume.py."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import cases
from tests.jobs.conftest import make_cluster
from trainium_cdk.client.jobs.job_spec import render
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.kinds.finetune import Finetune
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import BertLarge, Job, JobError, Nccom, Script, SlurmBackend, SubmitError, Submitted
from trainium_cdk.runner.spec import Place


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (lambda: Nccom(resume_from="/efs/run7"), "nccom cannot continue from a checkpoint: it writes none. Remove --resume-from"),
        (lambda: BertLarge(resume_from="/data/run7"), "/data/run7, which is on no shared file system of TrnPclusterStack (/efs)"),
        (lambda: BertLarge(resume_from="a-1", after="a-1"), "a-1 is given as --after and as --resume-from. Submit this job when"),
        (lambda: BertLarge(resume_from="s3://b/x/run7"), "resume_from is 's3://b/x/run7': it is read from the cluster, not from S3. Copy it: trn cp s3://b/x/run7 cluster:/efs/run7. Then give /efs/run7"),
        (lambda: BertLarge(checkpoint="s3://b/ckpt_7032.pt", phase=2), "Copy it: trn cp s3://b/ckpt_7032.pt cluster:/efs/ckpt_7032.pt. Then give /efs/ckpt_7032.pt"),
        (lambda: Finetune(model="a/b", weights="s3://b/models/one/"), "Copy it: trn cp s3://b/models/one/ cluster:/efs/one. Then give /efs/one"),
        (lambda: BertLarge(resume_from="../a"), "resume_from is '../a': not in the right format. Write a folder on the cluster"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_sent(job: Callable[[], Job], message: str) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        plan(job(), cases.cluster("slurm", job()))


def test_every_kind_says_where_its_checkpoints_are() -> None:
    assert {kind for kind in kinds().values() if not kind.CHECKPOINTS} == {Nccom}


def test_phase_2_goes_on_from_a_checkpoint_of_phase_2() -> None:
    """Of that of phase 1, only the name is needed."""
    job = BertLarge(phase=2, checkpoint="/efs/ckpt_7032.pt", resume_from="/efs/run7")
    made = render(job, make_cluster(), "t").spec
    assert (Place("root"), "/efs/ckpt_7032.pt") not in made.require
    assert made.checkpoints
    assert made.checkpoints.source == "/efs/run7"
    without = render(job.model_copy(update={"resume_from": None}), make_cluster(), "t").spec
    assert (Place("root"), "/efs/ckpt_7032.pt") in without.require


TRAIN = """#!/bin/bash
shopt -s nullglob
steps=("$TRN_CHECKPOINTS"/*.step)
printf 'has %s\\n' "${steps[*]##*/}" | tee -a "${TRN_CHECKPOINTS%/*}/seen"
: > "$TRN_CHECKPOINTS/$((${#steps[@]} + 1)).step"
if [ -n "${1:-}" ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
  scontrol requeue "$SLURM_JOB_ID"
  sleep 600
fi
"""


def test_on_slurm_a_job_goes_on_from_another_one_and_a_restart_does_not_copy_again(
    backend: SlurmBackend, shared: Path
) -> None:
    def train(*args: str, **fields: Any) -> Submitted:
        return backend.submit(Script(filename="train.sh", content=TRAIN.encode(), args=args, **fields))

    def seen(id: str) -> list[str]:
        """By its program. A log can lack the last lines before a requeue, which ends srun at once."""
        return (shared / "trn/jobs" / id / "seen").read_text().splitlines()

    first = train()
    assert list(first.stages) == ["train"]
    ended = backend.wait(first.id, timeout=90)
    assert ended.ok
    assert ended.checkpoints == f"/efs/trn/jobs/{first.id}/checkpoints"
    there = shared / "trn/jobs" / first.id / "checkpoints"
    assert [file.name for file in there.iterdir()] == ["1.step"]

    second = train("again", resume_from=first.id)
    assert list(second.stages) == ["prepare", "train"]
    assert backend.wait(second.id, timeout=180).ok
    assert seen(second.id) == ["has 1.step", "has 1.step 2.step"]
    assert [file.name for file in there.iterdir()] == ["1.step"]

    shutil.copytree(shared / "trn/jobs" / second.id / "checkpoints", shared / "run7")
    third = train(resume_from="/efs/run7")
    assert backend.wait(third.id, timeout=180).ok
    assert seen(third.id) == ["has 1.step 2.step 3.step"]
    log = b"".join(chunk.data for chunk in backend.logs(third.id, stage="train"))
    assert b"has 1.step 2.step 3.step" in log

    (shared / "empty").mkdir()
    for name in ("/efs/empty", "/efs/none", "no-such-job-1"):
        with pytest.raises(
            SubmitError, match=f"{name} has no checkpoint of script|no directory of checkpoints {name} on"
        ):
            train(resume_from=name)
    with pytest.raises(
        SubmitError, match=f"{first.id} is a job of kind script, whose checkpoints bert-large does not read"
    ):
        backend.submit(BertLarge(resume_from=first.id))
    assert not list((shared / "trn/jobs").glob("*/resumed.part"))
