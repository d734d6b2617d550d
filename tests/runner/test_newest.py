"""Which checkpoints of jobs S3 does not have, by what the jobs have recorded: what `trn destroy` names."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runner.preparing import Cluster
from tests.runner.test_resume import MADE, SCRIPT, write
from tests.runner.world import CLUSTER
from trainium_cdk.runner import aws, head, requests
from trainium_cdk.runner.prepare import checkpoints
from trainium_cdk.runner.requests import Checkpoint, FoundCheckpoints, ListCheckpoints, write_request
from trainium_cdk.runner.spec import Checkpoints


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    return Cluster(tmp_path)


def found(seen: requests.Cluster = CLUSTER) -> FoundCheckpoints:
    given = ListCheckpoints()
    answer = head.answer(json.dumps(write_request(seen, given)))
    made: FoundCheckpoints = requests.read_answer(given, json.loads(json.dumps(answer["answer"])))
    return made


def keep(own: Path, *, whole: tuple[Path, ...] = (), parts: tuple[Path, ...] = ()) -> None:
    """What `work.keep` records of these."""
    names = [aws.name_of(one, aws.stats(one)) for one in (*whole, *parts)]
    record = {"begun": names, "complete": names[: len(whole)]}
    write(own / "state/keep.json", json.dumps(record))


@pytest.mark.parametrize("kind", MADE)
def test_the_newest_complete_one_of_each_kind(kind: str, cluster: Cluster) -> None:
    """Until S3 has it as it is now."""
    made, make = MADE[kind]
    root = cluster.write(kind=kind, checkpoints=made)
    assert found() == FoundCheckpoints(())
    place = root / made.folder / made.place
    newest = place / make(place)
    size = sum(size for size, _ in aws.stats(newest).values())
    only_there = Checkpoint("run-1", newest.name, size, f"/efs/trn/jobs/run-1/{made.folder}", "run-1")
    assert size > 0
    assert found().checkpoints == (only_there,)
    older = list(checkpoints.complete(made, place))[1]
    for record in ({"whole": (older,)}, {"parts": (newest,)}):
        keep(root, **record)
        assert found().checkpoints == (only_there._replace(to="run-1/copied"),), "a copy mixes with nothing there"
    keep(root, whole=(older, newest))
    assert found().checkpoints == (only_there._replace(to=""),)
    changed = newest if newest.is_file() else next(one for one in newest.rglob("*") if one.is_file())
    os.utime(changed, (time.time() - 50, time.time() - 50))
    assert found().checkpoints == (only_there._replace(to="run-1/copied"),), "it was written again"


def file(folder: Path) -> str:
    write(folder / "model.bin", "12345")
    return "model.bin"


def marked(folder: Path) -> str:
    write(folder / "step-1/COMPLETE", "")
    write(folder / "step-1/weights", "12345")
    write(folder / "step-2/weights", "1")
    return "step-1"


def unmarked(folder: Path) -> str:
    for number in (9, 10):
        write(folder / f"step-{number}/weights", "12345")
        os.utime(folder / f"step-{number}", (number, number))
    write(folder / "trn-checkpoints", "kind script")
    return "step-10"


@pytest.mark.parametrize("make", [file, marked, unmarked])
def test_of_an_own_script_the_newest_entry_where_nothing_says_what_is_complete(
    make: Callable[[Path], str], cluster: Cluster
) -> None:
    root = cluster.write(checkpoints=SCRIPT)
    name = make(root / "checkpoints")
    path = "/efs/trn/jobs/run-1/checkpoints"
    assert found().checkpoints == (Checkpoint("run-1", name, 5, path, "run-1"),)


def test_an_array_has_those_of_each_member_and_the_newest_job_is_first(cluster: Cluster) -> None:
    made, make = MADE["finetune"]
    array = cluster.write(id="array", kind="finetune", checkpoints=made, array="0-2")
    os.utime(array / "job.json", (1000, 1000))
    for index in "02":
        make(array / index / made.folder)
    keep(array / "2", whole=(array / "2" / made.folder / "checkpoint-10",))
    make(cluster.write(id="later", kind="finetune", checkpoints=made) / made.folder)
    cluster.write(id="writes-none", kind="nccom")
    assert [(one.id, one.path, one.to) for one in found().checkpoints] == [
        ("later", "/efs/trn/jobs/later/output", "later"),
        ("array/0", "/efs/trn/jobs/array/0/output", "array/0"),
        ("array/2", "/efs/trn/jobs/array/2/output", ""),
    ]


def forge(root: Path, **changes: Any) -> None:
    record = json.loads((root / "job.json").read_text())
    (root / "job.json").write_text(json.dumps({**record, **changes}))
    (root / "checkpoints/model.bin").rename(root / "moved")


@pytest.mark.parametrize(
    "damage",
    [
        lambda root: (root / "job.json").write_text("{"),
        lambda root: (root / "job.json").write_text("[" * 100_000),
        lambda root: (root / "job.json").write_text('{"version": 1, "id": "run-1", "kind": "x", "array": "x"}'),
        lambda root: forge(root, checkpoints={"folder": "../run-2/checkpoints"}),
        lambda root: forge(root, array="0-99999999999"),
        lambda root: (root / "job.json").unlink(),
        lambda root: (root / "job.json").rename(root / "state/x") and os.mkfifo(root / "job.json"),  # type: ignore[func-returns-value]
    ],
)
def test_a_damaged_job_hides_no_other_one(damage: Callable[[Path], Any], cluster: Cluster) -> None:
    for id in ("run-1", "run-2"):
        write(cluster.write(id=id, checkpoints=SCRIPT) / "checkpoints/model.bin")
    damage(cluster.folder("run-1"))
    assert [one.id for one in found().checkpoints] == ["run-2"]


@pytest.mark.parametrize("record", ["", "[]", '{"begun": [], "complete": 7}', '{"complete": ["model.bin"]}'])
def test_a_damaged_record_of_copies_says_nothing(record: str, cluster: Cluster) -> None:
    root = cluster.write(checkpoints=SCRIPT)
    write(root / "checkpoints/model.bin")
    write(root / "state/keep.json", record)
    assert [one.to for one in found().checkpoints] == ["run-1"]


def test_names_that_no_terminal_takes(cluster: Cluster) -> None:
    """And what is a link to nowhere, or no file at all."""
    root = cluster.write(checkpoints=SCRIPT)
    (root / "checkpoints").mkdir()
    (root / "checkpoints/gone").symlink_to("nowhere")
    assert found().checkpoints == ()
    (root / "checkpoints" / os.fsdecode(b"\xff\x1b[2J")).mkdir()
    assert len(found().checkpoints) == 1
    write(root / "checkpoints/model.bin")
    assert [one.name for one in found().checkpoints] == ["model.bin"], "the newest"


def test_the_users_of_a_cluster_are_those_that_own_their_folders(cluster: Cluster) -> None:
    several, people = replace(CLUSTER, multi_user=True), cluster.root / "efs/trn-users"
    assert found(several).users == ()
    me = pwd.getpwuid(os.getuid()).pw_name
    for name in (me, "somebody-else"):
        (people / name).mkdir(parents=True)
    assert found(several).users == (me,)
    assert found().users == ()
    (people / me).chmod(0o700)
    assert found(replace(several, folder=f"trn-users/{me}")).users == (), "it is one of them"


def test_thousands_of_jobs_are_read_in_seconds(cluster: Cluster) -> None:
    """The newest 1,000; and of each the newest checkpoint alone."""
    made = Checkpoints("output", pattern="checkpoint-*", last="trainer_state.json")
    for number in range(1200):
        root = cluster.write(id=f"run-{number}", kind="finetune", checkpoints=made)
        os.utime(root / "job.json", (number, number))
        for step in range(1, 4):
            write(root / f"output/checkpoint-{step}/trainer_state.json", "{}")
    begun = time.monotonic()
    newest = found().checkpoints
    assert time.monotonic() - begun < 20
    assert [one.id for one in newest] == [f"run-{number}" for number in range(1199, 199, -1)]
    assert {one.name for one in newest} == {"checkpoint-3"}
