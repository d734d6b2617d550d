"""How a stage stands: tables."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runner.asking import job, on_slurm
from trainium_cdk.runner import records, slurm
from trainium_cdk.runner.head.answers import just_ended
from trainium_cdk.runner.head.submit import ACTIVE, COMPLETED, LOST, OVER, judge, judge_array, stand
from trainium_cdk.runner.records import State
from trainium_cdk.runner.slurm import Row
from trainium_cdk.runner.spec import JobSpec, StageSpec


def row(state: str, reason: str = "None", **changes: str) -> Row:
    own = {"queue": "q", "count": "1", "number": "7", "index": "", "nodes": "", "start": "", "end": "", "label": "7", "submitted": ""}  # fmt: skip
    given = {
        **own,
        "user": "me",
        "name": "j-1:train",
        "comment": "trn:j-1",
        "state": state,
        "reason": reason,
        **changes,
    }
    return Row(uid=os.getuid(), **given)


RUNS, WELL = State("running", "7"), State("ended", "7", code=0)
FAILED, STOPPED, GONE = (State("ended", "7", code=code, why=why) for code, why in ((1, ""), (143, "CANCELLED"), (143, "LOST")))  # fmt: skip


@pytest.mark.parametrize(
    ("slurm", "recorded", "expected"),
    [
        (row("PENDING"), None, ACTIVE),
        (row("RUNNING"), RUNS, ACTIVE),
        (row("RUNNING"), WELL, ACTIVE),
        (row("COMPLETING"), WELL, ACTIVE),
        (row("SUSPENDED"), RUNS, ACTIVE),
        (row("REQUEUED"), FAILED, ACTIVE),
        (row("COMPLETED"), None, COMPLETED),
        (row("COMPLETED"), RUNS, COMPLETED),
        (row("FAILED"), FAILED, OVER),
        (row("FAILED"), RUNS, LOST),
        (row("FAILED"), None, LOST),
        (row("FAILED"), WELL, COMPLETED),
        (row("NODE_FAIL"), RUNS, LOST),
        (row("BOOT_FAIL"), None, LOST),
        (row("OUT_OF_MEMORY"), FAILED, OVER),
        (row("CANCELLED"), None, OVER),
        (row("CANCELLED"), WELL, COMPLETED),
        (row("CANCELLED", "DependencyNeverSatisfied"), None, LOST),
        (row("TIMEOUT"), STOPPED, OVER),
        (row("DEADLINE"), None, OVER),
        (row("PREEMPTED"), RUNS, OVER),
        (None, None, LOST),
        (None, RUNS, LOST),
        (None, FAILED, OVER),
        (None, STOPPED, OVER),
        (None, GONE, LOST),
        (None, WELL, COMPLETED),
    ],
)
def test_a_stage(slurm: Row | None, recorded: State | None, expected: str) -> None:
    assert judge(slurm, recorded) == expected


@pytest.mark.parametrize(
    ("rows", "states", "expected"),
    [
        ([row("PENDING", index="1-2")], [WELL, None, None], ACTIVE),
        ([row("RUNNING", index="1"), row("FAILED", index="0")], [FAILED, RUNS], ACTIVE),
        ([], [None, None], LOST),
        ([row("CANCELLED", index="0")], [None, None], LOST),
        ([], [WELL, None], OVER),
        ([], [RUNS, None], OVER),
        ([], [FAILED, WELL], OVER),
        ([], [WELL, WELL], COMPLETED),
    ],
)
def test_an_array_of_which_a_member_has_begun_is_not_lost(rows: list[Row], states: list[State | None], expected: str) -> None:  # fmt: skip
    assert judge_array(rows, states) == expected


@pytest.mark.parametrize(
    "other",
    [
        row("RUNNING", name="j-2:train", comment="trn:j-2"),
        row("RUNNING", comment="trn:j-2"),
        row("RUNNING", comment=""),
        row("RUNNING", name="j-1:precompile"),
        row("RUNNING", number="8"),
        Row(**{**vars(row("RUNNING")), "uid": os.getuid() + 1}),
    ],
)
def test_a_number_alone_proves_nothing(tmp_path: Path, other: Row) -> None:
    assert stand(tmp_path, "j-1", {"train": "7"}, "train", [other]) == LOST
    assert stand(tmp_path, "j-1", {"train": "7"}, "train", [other, row("RUNNING")]) == ACTIVE


@pytest.mark.parametrize(
    ("slurm", "compiled", "trained", "expected"),
    [
        (row("FAILED"), FAILED, None, OVER),
        (row("FAILED"), WELL, FAILED, OVER),
        (row("FAILED"), WELL, None, LOST),
        (row("COMPLETED"), WELL, WELL, COMPLETED),
        (row("PENDING", "BeginTime"), WELL, STOPPED, ACTIVE),
        (None, FAILED, None, OVER),
        (None, WELL, None, LOST),  # the controller forgot it between the two
        (None, WELL, FAILED, OVER),
        (None, WELL, WELL, COMPLETED),
        (None, FAILED, WELL, OVER),  # it compiles again, and what it recorded of the training is older
    ],
)
def test_two_stages_in_one_slurm_job(
    slurm: Row | None, compiled: State | None, trained: State | None, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    for stage, state in (("precompile", compiled), ("train", trained)):
        if state:
            records.write_state(tmp_path, stage, state)
    for stage in ("precompile", "train"):
        assert stand(tmp_path, "j-1", {"precompile": "7", "train": "7"}, stage, [slurm] if slurm else []) == expected


@pytest.mark.parametrize(("ago", "expected"), [(0, True), (1, True), (3, False)])
def test_a_stage_is_not_started_in_the_second_of_its_end(ago: int, expected: bool) -> None:
    ended = dt.datetime.fromtimestamp(time.time() - ago, dt.UTC)
    assert just_ended(row("PENDING", "BeginTime", submitted=f"{ended:%Y-%m-%dT%H:%M:%S}")) is expected


@pytest.mark.parametrize("array", ["", "0-1"])
def test_a_stage_that_has_just_ended_is_not_lost(array: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS, a head node that has looked before does not see its record until it lists the folder."""
    own = tmp_path / "0" if array else tmp_path
    (own / "state").mkdir(parents=True)
    records.write_state(own, "train", FAILED)
    listed: set[str] = set()
    listing, state = os.listdir, records.state

    def list_(path: Path) -> list[str]:
        listed.add(str(path))
        return listing(path)

    monkeypatch.setattr(os, "listdir", list_)
    monkeypatch.setattr(
        records, "state", lambda job, *words: state(job, *words) if str(job / "state") in listed else None
    )
    ended = row("FAILED", "NonZeroExitCode", index="0" if array else "")
    assert stand(tmp_path, "j-1", {"train": "7"}, "train", [ended], array) == OVER


PREPARES = ["--job-name=j:prepare", "--comment=trn:j", "--partition=compute1", "--nodes=1", "--ntasks-per-node=1"]
TRAINS = ["--job-name=j:train", "--comment=trn:j", "--partition=compute1", "--nodes=1", "--ntasks-per-node=1"]
WHOLE = ["--exclusive", "--mem=0", "--requeue", "--open-mode=append"]
STAGES = (StageSpec("prepare"), StageSpec("precompile"), StageSpec("train"))


@pytest.mark.parametrize(
    ("changes", "stage", "has", "lacks"),
    [
        ({}, "prepare", [*PREPARES, *WHOLE, "--output=/j/logs/prepare.log"], ["--begin", "--dependency", "--time", "--array", "--account"]),
        ({}, "train", [*TRAINS, *WHOLE, "--output=/j/logs/train.log"], ["--begin", "--dependency", "--time", "--array", "--account", "--nodelist"]),
        ({"slurm": on_slurm(restarts=0)}, "train", ["--no-requeue"], ["--requeue"]),
        ({"slurm": on_slurm(restarts=0)}, "prepare", ["--requeue", "--nodes=1"], ["--no-requeue"]),
        ({"slurm": on_slurm(prepare_queue="cpu", options=("--constraint=a&b",))}, "prepare", ["--partition=cpu"], ["--constraint"]),
        ({"slurm": on_slurm(prepare_queue="cpu", options=("--constraint=a&b",))}, "train", ["--partition=compute1", "--constraint=a&b"], []),
        ({"slurm": on_slurm(account="vision", qos="high")}, "prepare", ["--account=vision", "--qos=high"], []),
        ({"stages": (StageSpec("precompile"),)}, "precompile", ["--job-name=j:precompile", "--output=/j/logs/precompile.log"], ["--time"]),
        ({"stages": (StageSpec("train"),), "array": "0-9%2"}, "train", ["--array=0-9%2", "--output=/j/logs/%a.log"], ["--output=/j/logs/train.log"]),
        ({"stages": (StageSpec("train", 4, processes=2, seconds=129_690),)}, "train", ["--nodes=4", "--ntasks-per-node=2", "--time=36:01:30"], []),
        ({"stages": (STAGES[1], StageSpec("train", seconds=5400))}, "train", ["--time=3:30:00"], []),
        ({"slurm": on_slurm(options=("--begin=now+7", "--dep=afterany:5"))}, "train", ["--begin=now+7", "--dependency=afterany:5", "--kill-on-invalid-dep=yes"], ["--dep=afterany:5"]),
        ({"slurm": on_slurm(options=("--begin=now+7",))}, "prepare", [], ["--begin"]),
    ],
)  # fmt: skip
def test_options(changes: dict[str, Any], stage: str, has: list[str], lacks: list[str]) -> None:
    made = job("j", **{"stages": STAGES, **changes})
    [stages] = [one for one in slurm.batches(made.stages) if one[-1].name == stage]
    found = slurm.sbatch_options(made, stages, Path("/j"))
    assert set(has) <= set(found)
    assert not [one for one in found if one in lacks or one.partition("=")[0] in lacks]


def test_a_job_waits_for_all_that_it_must() -> None:
    made: JobSpec = job("j", slurm=on_slurm(options=("--dependency=singleton", "--begin=16:00")))
    found = slurm.sbatch_options(made, made.stages, Path("/j"), after="afterok:7")
    assert found[-3:] == ["--begin=16:00", "--dependency=afterok:7,singleton", "--kill-on-invalid-dep=yes"]


@pytest.mark.parametrize(
    ("own", "compiles", "most", "expected"),
    [
        (3600, True, None, 10_800),
        (3600, True, 99_999.5, 10_800),
        (3600, True, 7200.5, 7200),
        (3600, True, 3600, 3600),
        (3600, True, 60, 3600),  # Slurm says that it is too long
        (3600, False, 60, 3600),
        (None, True, 60, None),
    ],
)
def test_the_limit_of_an_allocation(own: int | None, compiles: bool, most: float | None, expected: int | None) -> None:
    stages = (*([StageSpec("precompile")] if compiles else []), StageSpec("train", seconds=own))
    assert slurm.time_limit(stages, most) == expected


def test_the_batch_script_is_the_runner() -> None:
    assert slurm.batch_script("/efs/a b.pyz", Path("/efs/trn/jobs/j"), STAGES[1:]) == (
        "#!/bin/bash\nexec /usr/bin/python3 -I '/efs/a b.pyz' stage /efs/trn/jobs/j precompile train\n"
    )
