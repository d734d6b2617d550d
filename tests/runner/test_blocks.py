"""Jobs on a real Slurm whose capacity block ends: they save before it, wait for the next block, and go on there. Seconds stand for hours."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import FILES, JOB, SLURM, Jobs, Sent, program
from tests.runner.test_hangs import jobs as jobs
from tests.runner.training import TRAINS
from tests.support import begins_again, until
from trainium_cdk.runner import blocks, records
from trainium_cdk.runner import slurm as slurms
from trainium_cdk.runner.blocks import Block
from trainium_cdk.runner.head import answers
from trainium_cdk.runner.spec import Checkpoints, HealthRules, Place, StageSpec

KEPT = Checkpoints("output", pattern="step-*", last="done")
FIRST, NEXT = "cr-0123456789abcdef0", "cr-0123456789abcdef1"


def block(id: str = FIRST, saves: float = 3600, stops: float = 3900, ends: float = 5700, **fields: str) -> Block:
    """One that ends so many seconds from now."""
    now = time.time()
    return Block(
        **{"queue": "compute1", "resource": "trn", **fields},
        id=id,
        saves=now + saves,
        stops=now + stops,
        ends=now + ends,
    )  # type: ignore[arg-type]


def train(jobs: Jobs, **fields: object) -> Sent:
    made = program(
        "python3", (FILES, "/train.py"), resume=((Place("checkpoint"),),), variables={"JOB": (JOB,), "SLOW": "0.3"}
    )
    return jobs.submit(
        jobs.job(
            StageSpec("train", 2, made),
            files={"train.py": TRAINS.encode()},
            checkpoints=KEPT,
            health=HealthRules(every=0.4, least=30.0),
            slurm=dataclasses.replace(SLURM, **fields),  # type: ignore[arg-type]
        )
    )


def waits(sent: Sent) -> bool:
    found = sent.slurm.run(["squeue", "-h", "-j", sent.numbers["train"], "-o", "%T %r"]).stdout.split()
    return found == ["PENDING", "BeginTime"]


def starts(sent: Sent) -> float:
    """When Slurm starts it again, in seconds since 1970."""
    found = sent.slurm.run(
        ["squeue", "-h", "-j", sent.numbers["train"], "-o", "%S"], env={"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
    )
    return float(found.stdout)


def start(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> bool:
    """What the head node does at a status or a list."""
    with monkeypatch.context() as patch:
        for name, value in sent.slurm.node_env().items():
            patch.setenv(name, value)
        claims = {(sent.folder.name, "train", sent.numbers["train"])}
        return answers.start_requeued(sent.folder.parent, slurms.rows(numbers=sent.numbers.values()), claims)


def test_a_job_saves_before_its_block_ends_and_goes_on_in_the_next_one(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait holds at the start, too, and counts for no restart."""
    blocks.note(jobs.trn / "jobs", [block()])
    sent = train(jobs, restarts=1)
    sent.says("step 12/30")
    ending = block(saves=-1)
    blocks.note(jobs.trn / "jobs", [ending])
    sent.says("the stage waits for the next block")
    assert "is told to save" in sent.log()
    assert until(lambda: waits(sent), 120), sent.log()
    assert int((sent.folder / "saved").read_text()) >= 12
    kept = max(int(one.name.rpartition("-")[2]) for one in (sent.folder / "output").glob("step-*"))
    assert abs(starts(sent) - ending.ends) < 120
    assert not start(sent, monkeypatch)
    told = blocks.waits(sent.folder.parent, sent.folder, "compute1")
    assert told.startswith(f"capacity block {FIRST} ends at {blocks.clock(ending.ends)}: it waits for the next one")
    # Slurm starts it though the block ends: it leaves again, and its program does not run
    assert begins_again(sent.slurm, sent.numbers["train"], lambda: blocks.left(sent.folder).count == 2), sent.log()
    assert until(lambda: waits(sent), 120), sent.log()
    assert sent.log().count("begins after step") == 2
    blocks.note(jobs.trn / "jobs", [block(NEXT)])
    assert not blocks.waits(sent.folder.parent, sent.folder, "compute1")
    assert until(lambda: start(sent, monkeypatch), 5)
    assert (sent.left(), sent.ended().code) == ("COMPLETED", 0), sent.log()
    assert sent.state().attempt == 2  # type: ignore[union-attr]
    assert sent.log().count(f"begins after step {kept}") == 2, sent.log()


def test_who_says_no_stays_until_the_nodes_end(jobs: Jobs) -> None:
    blocks.note(jobs.trn / "jobs", [block(saves=-1)])
    sent = train(jobs, past_block_end=True)
    assert (sent.ended().code, sent.left()) == (0, "COMPLETED"), sent.log()


def test_a_job_without_restarts_saves_and_ends(jobs: Jobs) -> None:
    blocks.note(jobs.trn / "jobs", [block()])
    sent = train(jobs, restarts=0)
    sent.says("step 2/30")
    blocks.note(jobs.trn / "jobs", [block(saves=-1)])
    assert (sent.ended().code, sent.left()) == (66, "FAILED"), sent.log()
    failed = records.failure(sent.folder, "train")
    assert failed is not None
    assert failed.last.startswith(f"capacity block {FIRST} ends at ")
    assert (sent.folder / "saved").exists()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("compute1-st-trn-[1-2]", FIRST),
        ("compute1-st-more-3", NEXT),
        ("compute1-st-more-3,compute1-dy-trn-1", FIRST),  # the one that ends first
        ("compute1-trn-1", FIRST),  # as PCS names nodes
        ("compute1-st-trn-large-1", None),
        ("other-compute1-st-trn-1", None),
        ("compute1-1", None),
    ],
)
def test_the_block_of_nodes(nodes: str, expected: str | None, tmp_path: Path) -> None:
    blocks.note(tmp_path, [block(NEXT, ends=9000, resource="more"), block()])
    found = blocks.of_nodes(tmp_path, nodes)
    assert (found.id if found else None) == expected


@pytest.mark.parametrize(("saves", "ends", "expected"), [(10, 99, False), (-1, 99, True), (-99, -1, False)])
def test_nodes_after_the_end_are_of_another_block(saves: float, ends: float, expected: bool) -> None:
    assert block(saves=saves, ends=ends).is_ending(time.time()) is expected


def test_a_forged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / ".blocks.json").write_text('{"blocks": [{"queue": 7}]}')
    assert blocks.read(tmp_path) == []
    (tmp_path / ".blocks.json").unlink()
    (tmp_path / ".blocks.json").symlink_to("/etc/passwd")
    assert blocks.read(tmp_path) == []
