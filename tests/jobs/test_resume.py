"""Going on from another job's checkpoints: what is refused before anything is sent, and what `prepare` copies, for each kind, with bash."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import cases
from conformance.resumed import prepared
from tests.jobs.conftest import make_cluster
from tests.support import completed
from trainium_cdk.jobs import (
    BertLarge,
    Finetune,
    Gpt,
    Job,
    JobError,
    Nccom,
    Script,
    SlurmBackend,
    SubmitError,
    Submitted,
    TorchTitan,
    checkpoints,
    shell,
)
from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.jobs.models import Template
from trainium_cdk.jobs.plan import plan
from trainium_cdk.jobs.slurm.render import render

GIVEN: dict[type[Job], dict[str, Any]] = {
    BertLarge: {},
    Gpt: {},
    TorchTitan: {"ref": "a" * 40},
    Finetune: {},
    Script: {"filename": "train.py", "content": b"print(1)"},
}


def write(file: Path, content: str = "content") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def torch_file(file: Path, whole: bool = True) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", file.name * 200)
    if not whole:
        file.write_bytes(file.read_bytes()[:1000])


def bert(folder: Path) -> str:
    for step in (9, 10, 100):
        torch_file(folder / f"ckpt_{step}.pt", whole=step != 100)
    write(folder / "results.json")
    return "ckpt_10.pt"


def of_nxd(*names: str) -> Callable[[Path], str]:
    """Three, of which the last was not written to its end."""

    def made(folder: Path) -> str:
        for number, name in enumerate(names):
            for rank in range(20):
                write(folder / name / f"optim/dp_rank_{rank:02}_tp_rank_00_pp_rank_00.pt", name)
            if number < 2:
                write(folder / name / "done", "1")
        return names[1]

    return made


def titan(folder: Path) -> str:
    for step in (9, 10, 100):
        write(folder / f"step-{step}/__0_0.distcp", str(step))
        write(folder / f"step-{step}/.metadata", "" if step == 100 else "x")
    return "step-10"


def trainer(folder: Path) -> str:
    for step in (9, 10, 100):
        write(folder / f"checkpoint-{step}/trainer_state.json", "" if step == 100 else "{}")
        write(folder / f"checkpoint-{step}/pytorch_model_fsdp_0/__0_0.distcp", str(step))
    return "checkpoint-10"


MADE: dict[type[Job], tuple[Callable[[Path], str], str]] = {
    BertLarge: (bert, "output"),
    Gpt: (
        of_nxd(*(f"megatron_gpt--step={n}-consumed_samples={n * 1024.0}.ckpt" for n in (800, 1000, 1200))),
        "output/checkpoints",
    ),
    TorchTitan: (titan, "output/checkpoint"),
    Finetune: (trainer, "output"),
}
"""What each program writes, and where it looks for it."""


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("source", ["/efs/run7/", "earlier-1"])
@pytest.mark.parametrize("kind", MADE)
def test_the_newest_complete_one_is_copied_once(kind: type[Job], source: str, tmp_path: Path) -> None:
    write_them, place = MADE[kind]
    folder = kind.CHECKPOINTS.folder if kind.CHECKPOINTS else ""
    earlier = tmp_path / ("efs/run7" if source.startswith("/") else f"efs/trn/jobs/{source}/{folder}")
    newest = write_them(earlier if source.startswith("/") else tmp_path / "efs/trn/jobs" / source / place)
    before = content(earlier)
    job, new = kind(resume_from=source, **GIVEN[kind]), tmp_path / "efs/trn/jobs/new"
    assert prepared(job, tmp_path, "check").returncode == 3
    done = prepared(job, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in (new / place).iterdir()] == [newest]
    old = earlier / place.removeprefix(folder).strip("/") if not source.startswith("/") else earlier
    there, copied = old / newest, new / place / newest
    assert content(copied) == content(there) if there.is_dir() else copied.read_bytes() == there.read_bytes()
    assert content(earlier) == before
    assert not (new / "resumed.part").exists()
    # what the job has written since is not lost, and nothing is copied again, also not where the first ones are gone
    write(new / place / "later", "newer")
    for file in sorted(earlier.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert [prepared(job, tmp_path, mode).returncode for mode in ("check", "fetch")] == [0, 0]
    assert (new / place / "later").read_text() == "newer"


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    newest = trainer(tmp_path / "efs/elsewhere")
    (tmp_path / "efs/run7").symlink_to("elsewhere")
    done = prepared(Finetune(resume_from="/efs/run7"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "efs/trn/jobs/new/output").iterdir()] == [newest]


def test_an_interrupted_copy_begins_again(tmp_path: Path) -> None:
    newest = bert(tmp_path / "efs/run7")
    new = tmp_path / "efs/trn/jobs/new"
    write(new / "resumed.part/copied", "half of it")
    assert prepared(BertLarge(resume_from="/efs/run7"), tmp_path).returncode == 0
    assert (new / "output" / newest).read_bytes() == (tmp_path / "efs/run7" / newest).read_bytes()


def test_a_script_gets_all_and_each_member_of_an_array_its_own(tmp_path: Path) -> None:
    source = tmp_path / "efs/run7"
    write(source / "a/1.pt", "one")
    (source / "latest").symlink_to("a/1.pt")
    job = Script(resume_from="/efs/run7", array="0,3", **GIVEN[Script])
    assert prepared(job, tmp_path).returncode == 0
    for member in ("0", "3"):
        copied = tmp_path / f"efs/trn/jobs/new/{member}/checkpoints"
        assert (copied / "latest").readlink() == Path("a/1.pt")
        (copied / "latest").write_text("two")
    assert content(source) == {"a/1.pt": b"one", "latest": b"one"}


@pytest.mark.parametrize(
    ("kind", "had", "message"),
    [
        (BertLarge, "kind gpt-6.7b\nworkers 32", "/efs/run7 has checkpoints of gpt-6.7b, not of bert-large. Submit the same"),
        (BertLarge, "kind bert-large\nphase 2\noptimizer lamb", "a job with phase 2, and this job has phase 1, with which"),
        (Gpt, "kind gpt-6.7b\ntensor_parallel 8\nworkers 64", "a job with workers 64, and this job has workers 32, with which"),
        (Gpt, "kind gpt-6.7b\ntensor_parallel 4\nworkers 32", "a job with tensor_parallel 4, and this job has tensor_parallel 8"),
        (Finetune, "kind finetune\nmodel \x1b[31mQwen/Qwen3-8B\n", "a job with model [31mQwen/Qwen3-8B, and this job has model Qwen/"),
        (Gpt, None, "/efs/run7 has no checkpoint of gpt-6.7b that was written to its end. Wait for one"),
    ],
)  # fmt: skip
def test_what_it_cannot_go_on_from(kind: type[Job], had: str | None, message: str, tmp_path: Path) -> None:
    """`require`, which the head node runs before it submits anything, and `prepare` say so."""
    if had is not None:
        MADE[kind][0](tmp_path / "efs/run7")
        write(tmp_path / "efs/run7/trn-checkpoints", f"{had}\n")
    else:
        write(tmp_path / "efs/run7/step_500/optim/x.pt")
    job = kind(resume_from="/efs/run7", **GIVEN[kind])
    done = prepared(job, tmp_path)
    assert (done.returncode, message in done.stderr, "\x1b" in done.stderr) == (1, True, False), done.stderr
    require = checkpoints.complete(Template(""), plan(job, cases.cluster("slurm", job))).require
    env = {**os.environ, "TRN_SHARED_ROOT": str(tmp_path)}
    text = f'set -euo pipefail\ndie() {{ echo "$*" >&2; exit 7; }}\n{require}'
    done = completed(["bash", "-c", text], env=env)
    assert (done.returncode, message in done.stderr) == (7, True), done.stderr


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (lambda: Nccom(resume_from="/efs/run7"), "nccom goes on from no checkpoint: it writes none. Remove --resume-from"),
        (lambda: BertLarge(resume_from="/data/run7"), "/data/run7, which is on no shared file system of TrnPclusterStack (/efs)"),
        (lambda: BertLarge(resume_from="a-1", after="a-1"), "a-1 is given as --after and as --resume-from. Submit this job when"),
        (lambda: BertLarge(resume_from="../a"), "resume_from is '../a': not in the right format. Write a folder on the cluster"),
    ],
)  # fmt: skip
def test_refused_before_anything_is_sent(job: Callable[[], Job], message: str) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        plan(job(), cases.cluster("slurm", job()))


def test_every_kind_says_where_its_checkpoints_are() -> None:
    """And which is new is in `MADE`, or has none that its program starts from."""
    assert {kind for kind in kinds().values() if kind.CHECKPOINTS and kind.CHECKPOINTS.newest} == set(MADE)
    assert {kind for kind in kinds().values() if not kind.CHECKPOINTS} == {Nccom}


def test_phase_2_goes_on_from_a_checkpoint_of_phase_2() -> None:
    """Of that of phase 1, only the name is needed."""
    job = BertLarge(phase=2, checkpoint="/efs/ckpt_7032.pt", resume_from="/efs/run7")
    sent = render(job, make_cluster(), "t")
    assert '[ -e "${TRN_SHARED_ROOT:-}"/efs/ckpt_7032.pt ]' not in sent.text
    assert '[ -z "$TRN_CHECKPOINT" ] && [ ! -f "$TRN_PHASE1" ]' in sent.files["train.sbatch"].decode()


@pytest.mark.parametrize("member", ["", "/3"])
def test_phase_2_starts_from_the_checkpoint_of_another_job(member: str, tmp_path: Path) -> None:
    """Also a member of an array, whose folder is in the array's."""
    torch_file(tmp_path / "trn/jobs/first-1/output/ckpt_7.pt")
    job = BertLarge(phase=2, checkpoint="first-1", array="3" if member else None)
    before = job.template(plan(job, make_cluster())).before
    functions = shell.read("checkpoints.sh").decode()
    text = f'set -euo pipefail\nsay() {{ echo "$*"; }}\n{functions}\n{before}\necho "$TRN_PHASE1"'
    done = completed(["bash", "-c", text], env={**os.environ, "job": f"{tmp_path}/trn/jobs/second-1{member}"})
    assert done.stdout == f"{tmp_path}/trn/jobs/first-1/output/ckpt_7.pt\n", done.stderr


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
