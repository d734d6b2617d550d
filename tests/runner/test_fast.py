"""Checkpoints on a node's own disk, which are copied behind a training."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import FILES, Jobs, program
from tests.support import begins_again, until
from trainium_cdk.runner.spec import Checkpoints, Place
from trainium_cdk.runner.work import fast
from trainium_cdk.runner.work.fast import KEPT, Copier
from trainium_cdk.runner.work.places import Node

Made = Callable[..., Copier]
SAID: list[str] = []


@pytest.fixture
def job(tmp_path: Path) -> Path:
    SAID.clear()
    (tmp_path / "jobs/one/checkpoints").mkdir(parents=True)
    return tmp_path / "jobs/one"


@pytest.fixture
def made(job: Path, tmp_path: Path) -> Made:
    """Of a node, whose disk is its own."""

    def make(number: int = 0, nodes: int = 1, run: str = "7-0") -> Copier:
        disk = tmp_path / f"disk-{number}"
        disk.mkdir(exist_ok=True)
        one = Copier(Node(job, job, number, nodes, run=run), job / "checkpoints", SAID.append, disk=disk)
        one.prepare()
        return one

    return make


def save(one: Copier, name: str, **content: str) -> None:
    """As a program should: beside, then renamed into place."""
    part = one.local / f"{name}.part"
    for file, text in content.items():
        (part / file).parent.mkdir(parents=True, exist_ok=True)
        (part / file).write_text(text)
    part.mkdir(exist_ok=True)
    part.rename(one.local / name)


def there(job: Path) -> dict[str, str]:
    """All files of complete checkpoints."""
    place = job / "checkpoints"
    return {str(one.relative_to(place)): one.read_text() for one in place.rglob("*") if one.is_file()}


def test_what_is_finished_is_copied(made: Made, job: Path) -> None:
    one = made()
    save(one, "step-8", model="8")
    assert one.look()
    assert there(job) == {"step-8/model": "8"}
    assert json.loads((job / "fast/complete.json").read_text()) == ["step-8"]
    assert (one.local / "step-8").exists()  # the newest stays, for whoever reads it there


@pytest.mark.parametrize("name", ["step-8.part", "step-8.tmp", ".step-8"])
def test_what_is_being_written_is_left_alone(name: str, made: Made, job: Path) -> None:
    one = made()
    (one.local / name).mkdir()
    (one.local / name / "model").write_text("8")
    assert one.look()
    assert not (job / "fast").exists()
    assert there(job) == {}


def test_what_changes_while_it_is_copied_is_copied_again(
    made: Made, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, real = made(), shutil.copyfileobj

    def copy(of: Any, to: Any, size: int) -> None:
        real(of, to, size)
        with Path(of.name).open("a") as more:
            more.write("!")

    save(one, "step-8", model="8")
    with monkeypatch.context() as patch:
        patch.setattr(fast.shutil, "copyfileobj", copy)
        assert not one.look()
    assert there(job) == {}
    assert one.look()
    assert there(job) == {"step-8/model": "8!"}


def test_it_is_complete_when_all_nodes_have_copied_their_parts(made: Made, job: Path) -> None:
    first, second = made(0, 2), made(1, 2)
    save(first, "step-8", **{"ranks/0": "a", "config": "first"})
    assert first.look()
    assert second.look()
    assert there(job) == {}
    save(second, "step-8", **{"ranks/1": "b", "config": "second"})
    second.look()
    assert there(job) == {}  # one place puts it together
    first.look()
    assert there(job) == {"step-8/ranks/0": "a", "step-8/ranks/1": "b", "step-8/config": "first"}
    assert not (job / "fast/7-0/step-8").exists()


@pytest.mark.parametrize("dies", [0, 1])
def test_a_node_that_dies_in_the_middle_of_a_copy(
    dies: int, made: Made, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was complete stays, and no part of it is used by the next run."""
    nodes = [made(number, 2) for number in (0, 1)]
    for one in nodes:
        save(one, "step-8", **{f"rank-{one._node.number}": "8"})
        one.look()
    nodes[0].look()
    complete = there(job)
    assert len(complete) == 2

    class Dead(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Dead

    for one in nodes:
        save(one, "step-16", **{f"rank-{one._node.number}": "16"})
    nodes[1 - dies].look()
    with monkeypatch.context() as patch:
        patch.setattr(fast.shutil, "copyfileobj", die)
        with pytest.raises(Dead):
            nodes[dies].look()
    nodes[0].look() if dies else None
    assert there(job) == complete

    again = [made(number, 2, run="7-1") for number in (0, 1)]
    assert not (job / "fast/7-0").exists()
    save(again[0], "step-16", **{"rank-0": "again"})
    again[0].look()
    assert there(job) == complete
    save(again[1], "step-16", **{"rank-1": "again"})
    again[1].look()
    again[0].look()
    assert there(job) == {**complete, "step-16/rank-0": "again", "step-16/rank-1": "again"}


def test_a_node_that_dies_while_it_puts_a_checkpoint_together(
    made: Made, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = made(0, 2), made(1, 2)
    for one in (first, second):
        save(one, "step-8", **{f"rank-{one._node.number}": "8"})
    second.look()

    real = Path.rename

    def rename(self: Path, to: Path) -> Path:
        if to.parent.name == "checkpoints":
            raise KeyboardInterrupt
        return real(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            first.look()
    assert there(job) == {}
    made(0, 2, run="7-1")
    assert not (job / "fast/7-0").exists()


def test_an_attempt_that_begins_again_by_the_same_name(made: Made, job: Path) -> None:
    """As one that was preempted on Kubernetes: what its nodes have copied before is not used."""
    first, second = made(0, 2), made(1, 2)
    save(second, "step-8", **{"rank-1": "old"})
    second.look()
    first, second = made(0, 2), made(1, 2)
    save(first, "step-8", **{"rank-0": "new"})
    first.look()
    assert there(job) == {}
    save(second, "step-8", **{"rank-1": "new"})
    second.look()
    first.look()
    assert there(job) == {"step-8/rank-0": "new", "step-8/rank-1": "new"}


def test_a_full_file_system_fails_no_training(made: Made, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and tried again."""
    one = made()
    save(one, "step-8", model="8")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(fast.shutil, "copyfileobj", full)
        assert not one.look()
        assert not one.look()
    [said] = SAID
    assert said == f"the checkpoint step-8 is not copied to {job}/checkpoints: No space left on device"
    assert not (job / "fast/7-0/step-8/0.part").exists()
    assert one.look()
    assert there(job) == {"step-8/model": "8"}


def test_the_newest_stay(made: Made, job: Path) -> None:
    """Of those that were copied; what the program itself has put beside them is its own."""
    one = made()
    (job / "checkpoints/mine").mkdir()
    for step in range(1, KEPT + 3):
        save(one, f"step-{step}", model=str(step))
        assert one.look()
    assert sorted(path.name for path in (job / "checkpoints").iterdir()) == ["mine", "step-3", "step-4", "step-5"]
    assert [path.name for path in one.local.iterdir()] == ["step-5"]
    after = made(run="7-1")
    save(after, "step-6", model="6")
    assert after.look()
    assert not (job / "checkpoints/step-3").exists()


def test_a_file_is_no_checkpoint(made: Made, job: Path) -> None:
    one = made()
    (one.local / "model.pt").write_text("8")
    (one.local / "link").symlink_to(job)
    one.look()
    assert there(job) == {}
    assert SAID[0].endswith("a checkpoint is a folder, which each node makes")


def test_a_link_in_a_checkpoint_is_left_out(made: Made, job: Path, tmp_path: Path) -> None:
    one = made()
    (tmp_path / "secret").write_text("x")
    (one.local / "step-8.part").mkdir()
    (one.local / "step-8.part/link").symlink_to(tmp_path / "secret")
    (one.local / "step-8.part").rename(one.local / "step-8")
    assert one.look()
    assert there(job) == {}


def test_the_end_waits_for_the_last_checkpoint(made: Made, job: Path) -> None:
    first, second = made(0, 2), made(1, 2)
    first.begin()
    second.begin()
    for one in (first, second):
        save(one, "step-8", **{f"rank-{one._node.number}": "8"})
    second.end(20)
    first.end(20)
    assert len(there(job)) == 2
    assert SAID == []
    assert not first.local.exists()


def test_a_checkpoint_that_one_node_has_not_made_is_told_at_the_end(made: Made, job: Path) -> None:
    first, second = made(0, 2), made(1, 2)
    first.begin()
    save(first, "step-8", model="8")
    first.look()
    second.begin()
    second.end(20)
    first.end(20)
    assert there(job) == {}
    assert SAID == ["not complete, as not every node has copied its part in time: step-8"]


def test_a_folder_of_another_user_is_refused(made: Made, tmp_path: Path, job: Path) -> None:
    disk = tmp_path / "disk-0"
    disk.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (disk / f"trn-fast-{os.getuid()}-one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        made()


OTHER = """
import sys, time
from pathlib import Path
from trainium_cdk.runner.work.fast import Copier
from trainium_cdk.runner.work.places import Node

job, disk = Path(sys.argv[1]), Path(sys.argv[2])
one = Copier(Node(job, job, 0, 1, run="8-0"), job / "checkpoints", print, disk=disk)
one.prepare()
(one.local / "step-8").mkdir()
print(one.local, flush=True)
time.sleep(600)
"""


def test_what_a_killed_job_has_left_on_the_disk_goes_with_the_next_one(made: Made, tmp_path: Path) -> None:
    (tmp_path / "disk-0").mkdir()
    words = [sys.executable, "-c", OTHER, str(tmp_path / "jobs/two"), str(tmp_path / "disk-0")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            theirs = Path(other.stdout.readline().strip()) / "step-8"
            assert theirs.is_dir()
            mine = made()
            assert theirs.is_dir()
        finally:
            other.kill()
    mine.end(0)
    made()
    assert not theirs.parents[1].exists()


SAVES = '''
"""Each node saves its part of a checkpoint every 8 steps. In the first attempt node 1 waits before step 17, which only node 0 can have saved."""
import os, time
from pathlib import Path

node, fast, kept = os.environ["NODE_RANK"], Path(os.environ["TRN_CHECKPOINTS_FAST"]), Path(os.environ["TRN_CHECKPOINTS"])
found = max((int(one.name[5:]) for one in kept.glob("step-*")), default=0)
print("begins after step", found, [sorted(one.name for one in (kept / f"step-{found}").glob("*"))], list(fast.iterdir()), flush=True)
for step in range(found + 1, 25):
    while not found and step == 9 and not (kept / "step-8").exists():
        time.sleep(0.1)
    if step == 16 and not found and node == "1":
        print("waits", flush=True)
        time.sleep(600)
    if step % 8 == 0:
        part = fast / "part.tmp"
        part.mkdir()
        (part / f"rank-{node}").write_text(str(step))
        part.rename(fast / f"step-{step}")
while not found:
    time.sleep(0.1)
'''


def test_a_training_on_two_nodes_that_loses_one(slurm: LocalSlurm, tmp_path: Path) -> None:
    """It goes on from the newest checkpoint that both have copied. What the program writes last is copied before the job has ended."""
    jobs = Jobs(slurm, tmp_path)
    kept: Any = (Place("job"), "/checkpoints")
    train = program("python3", (FILES, "/train.py"), variables={"TRN_CHECKPOINTS": kept}, folders=(kept,))
    sent = jobs.train(train, 2, files={"train.py": SAVES.encode()}, checkpoints=Checkpoints("checkpoints"))
    sent.says("1: waits")
    assert until(lambda: any(sent.folder.glob("fast/*/step-16/0")), 60)
    node = slurm.run(["scontrol", "show", "hostnames", sent.running().nodes]).stdout.split()[1]
    slurm.kill_node(node)
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=hardware"])
    slurm.replace_node(node)
    assert begins_again(slurm, sent.numbers["train"], lambda: sent.log().count("trn: train: Slurm job") > 1)
    assert sent.left() == "COMPLETED", sent.log()
    assert "1: begins after step 8 [['rank-0', 'rank-1']] []" in sent.log()
    for step in (8, 16, 24):
        place = sent.folder / f"checkpoints/step-{step}"
        assert {one.name: one.read_text() for one in place.iterdir()} == {"rank-0": str(step), "rank-1": str(step)}
    assert not list((sent.folder / "fast").glob("*/step-*"))
