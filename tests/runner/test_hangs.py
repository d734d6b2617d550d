"""Trainings on a real Slurm that hang, lose their loss, or cost too much: what is found, told, and done. Seconds stand for minutes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import FILES, JOB, Jobs, Sent, program, shell
from tests.runner.training import TRAINS
from tests.support import begins_again, file_system, fill, swept, until
from trainium_cdk.runner import records
from trainium_cdk.runner.readers import Finding
from trainium_cdk.runner.readers.log import JobLog, Lines
from trainium_cdk.runner.spec import Budget, Checkpoints, HealthRules, Place, StageSpec
from trainium_cdk.runner.work import health

FAST = HealthRules(every=0.4, least=3.0)
KEPT = Checkpoints("output", pattern="step-*", last="done")


@pytest.fixture
def jobs(slurm: LocalSlurm, tmp_path: Path) -> Iterator[Jobs]:
    yield Jobs(slurm, tmp_path)
    slurm.run(["scancel", f"--user={slurm.node_env()['USER']}"])


def train(jobs: Jobs, rules: HealthRules = FAST, nodes: int = 2, budget: Budget | None = None, **env: str) -> Sent:
    made = program("python3", (FILES, "/train.py"), resume=((Place("checkpoint"),),), variables={"JOB": (JOB,), **env})
    stage = StageSpec("train", nodes, made)
    files = {"train.py": TRAINS.encode()}
    return jobs.submit(jobs.job(stage, files=files, checkpoints=KEPT, health=rules, budget=budget))


def told(sent: Sent) -> list[Finding]:
    """What the log tells, in its order."""
    log = JobLog(Lines())
    return [one for _, one in log.feed("train", sent.log().encode()) if isinstance(one, Finding)]


def kinds(sent: Sent) -> list[str]:
    return [f"{one.kind} over" if one.over else one.kind for one in told(sent)]


def now(sent: Sent, kind: str, patience: float = 60) -> Finding:
    """A finding, as `trn status` reads it."""
    until = time.monotonic() + patience
    while not (here := [one for one in health.found(sent.folder, "train") if one.kind == kind]):
        assert time.monotonic() < until, sent.log()
        time.sleep(0.05)
    return here[0]


def ends_as_it_would(sent: Sent) -> None:
    """Its fault is over now."""
    (sent.folder / "go").touch()
    assert (sent.ended().code, sent.ended().attempt, sent.left()) == (0, 0, "COMPLETED"), sent.log()
    assert sent.log().count("trn: train: Slurm job") == 1


def on_node(sent: Sent, node: int) -> tuple[int, int]:
    """The processes of a node: its program, and the runner that watches it."""
    begun = [line.split() for line in (sent.folder / "begun").read_text().splitlines()]
    program = next(int(number) for _, where, number, _ in begun if where == str(node))
    return program, int(Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_node_that_hangs_is_told_and_the_training_begins_again(jobs: Jobs) -> None:
    """On the same nodes, from the newest checkpoint, once: no step runs twice at a time. The stacks are in the log of each node."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT="hang", UNTIL="1")
    assert sent.ended().code == 0, sent.log()
    assert sent.left() == "COMPLETED"
    found = told(sent)
    hang = next(one for one in found if one.kind == "hang")
    assert re.match(r"no step for \d.* s \(usually one in .* s\): node", hang.evidence)
    assert "node 1 at step 23, last line: waits for a device" in hang.evidence
    assert kinds(sent).count("restarted") == 2  # when it is, and of the run after it
    log = sent.log()
    assert log.count("begins after step 20") == 2
    assert "begins after step 0" in log
    for node in (0, 1):
        assert "restart: it hangs: no step" in sent.log(f"train.{node}")
    assert "stuck_in_a_collective" in sent.log("train.1")
    begun = [line.split() for line in (sent.folder / "begun").read_text().splitlines()]
    assert sorted((a, n) for a, n, *_ in begun) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert log.count("trn: train: Slurm job") == 2


def test_a_program_that_hangs_again_and_again_is_at_fault(jobs: Jobs) -> None:
    """Three restarts without a new step; then the job has failed, and says why."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT="hang", SLOW="0.05")
    state = sent.ended()
    assert (state.code, sent.left()) == (66, "FAILED"), sent.log()
    assert sent.log().count("trn: train: Slurm job") == 4
    failed = records.failure(sent.folder, "train")
    assert failed is not None
    assert failed.last.startswith(
        "it hung 4 times after step 23, without a new step between: its program is at fault. no step for"
    )
    assert health.tried(sent.folder).restarts == 3


def test_what_is_only_told(jobs: Jobs) -> None:
    """The default: a hang, until it goes on; the loss that is no number, with the checkpoint from before. The training ends as it would."""
    sent = train(jobs, FAULT="nan", AT="12", STEPS="24")
    found = now(sent, "nan")
    assert f"The newest checkpoint from before is {sent.folder}/output/step-10" in found.evidence
    assert found.evidence.startswith("the loss is not a number since step 12, in ")
    assert (sent.ended().code, sent.left()) == (0, "COMPLETED")
    assert set(kinds(sent)) == {"nan"}


def test_a_loss_that_is_no_number_stops_the_training_where_that_is_said(jobs: Jobs) -> None:
    """At once: what it would save is worth nothing."""
    sent = train(jobs, HealthRules(nan="stop", every=0.4, least=3.0), FAULT="nan", AT="12", STEPS="600")
    assert (sent.ended().code, sent.left()) == (66, "FAILED")
    failed = records.failure(sent.folder, "train")
    assert failed is not None
    count = re.match(r"the loss is not a number since step 12, in (\d+) steps\.", failed.last)
    assert count
    assert int(count[1]) >= health.NANS
    assert failed.last.endswith(f"The newest checkpoint from before is {sent.folder}/output/step-10")
    assert not (sent.folder / "saved").exists()


def test_a_training_that_goes_on_again(jobs: Jobs) -> None:
    """It prints nothing, and writes its steps into a file."""
    sent = train(jobs, FAULT="pause", QUIET="1")
    hang = now(sent, "hang")
    assert (hang.rank, sent.running().state) == (7, records.RUNNING)
    ends_as_it_would(sent)
    assert kinds(sent) == ["hang", "hang over"]


def test_a_node_that_tells_no_step_while_others_go_on(jobs: Jobs) -> None:
    """Nothing is done, also where hangs are."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT="mute", STEPS="160")
    found = now(sent, "straggler")
    assert found.node == 1
    assert re.fullmatch(
        r"no step for \d.* s, while others continue: node 1 at step 23, last line: step 23/160 .*", found.evidence
    )
    assert found.text.startswith("has a straggler since 20")
    ends_as_it_would(sent)
    assert kinds(sent) == ["straggler", "straggler over"]


def test_a_node_whose_runner_sends_no_sign(jobs: Jobs) -> None:
    """The program goes on, and what it has printed meanwhile is read when the runner is there again."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), STEPS="160")
    sent.says("1: step 3/160")
    program, runner = on_node(sent, 1)
    os.kill(runner, signal.SIGSTOP)
    try:
        found = now(sent, "silent")
        assert Path(f"/proc/{program}").exists()
    finally:
        os.kill(runner, signal.SIGCONT)
    assert found.node == 1
    assert re.fullmatch(r"node 1: its runner sends no sign for 1\d s", found.evidence)
    assert found.text.startswith("has a silent node since 20")
    ends_as_it_would(sent)
    assert kinds(sent) == ["silent", "silent over"]


def test_a_training_that_does_not_begin(jobs: Jobs) -> None:
    """Nothing is done, also where hangs are: it may compile."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0, start=4.0), FAULT="pause", AT="2")
    found = now(sent, "start")
    assert re.fullmatch(
        r"fewer than 10 steps so far, and nothing printed for \d.* s; node [01] at step 1, last line: .*",
        found.evidence,
    )
    assert found.text.startswith("has not begun since 20")
    ends_as_it_would(sent)
    assert kinds(sent) == ["start", "start over"]


def test_a_training_that_hangs_before_its_tenth_step(jobs: Jobs) -> None:
    """Its steps may all be in one look. It begins again; the first attempt has told how long a step takes."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT="hang", AT="8", UNTIL="1", STEPS="12")
    assert (sent.ended().code, sent.left()) == (0, "COMPLETED"), sent.log()
    hang = next(one for one in told(sent) if one.kind == "hang")
    assert re.match(r"no step for \d.* s \(7 in this attempt\): node", hang.evidence)
    assert "node 1 at step 7, last line: waits for a device" in hang.evidence
    assert health.tried(sent.folder).restarts == 1


BEGINS = [
    ("neuronx-cc", "3"),
    ("Saving checkpoint", "5"),
    ("***** Running Evaluation *****", "5"),
    ("bar", "5"),
    ("Compiling module MODULE_1", "3"),
]


@pytest.mark.parametrize(("said", "at"), swept(BEGINS, *BEGINS[:1], *BEGINS[3:4]))
def test_what_takes_long_before_the_tenth_step_is_no_hang(said: str, at: str, jobs: Jobs) -> None:
    """Another shape is compiled, as TorchNeuron does it: by a child that it starts, without a line. The first checkpoint; a slow evaluation."""
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT=said, AT=at, STEPS="14", LONG="14")
    assert (sent.ended().code, sent.left()) == (0, "COMPLETED"), sent.log()
    assert told(sent) == []


def test_a_program_that_tells_no_step(jobs: Jobs) -> None:
    """It has no hang, however long it takes. Only that it prints nothing is told."""
    works = shell("for _ in $(seq 15); do echo works; sleep 0.4; done; until [ -e ../go ]; do sleep 0.1; done")
    sent = jobs.train(works, health=HealthRules("restart", every=0.4, least=1.0, start=4.0))
    found = now(sent, "start")
    assert re.fullmatch(r"no step so far, and nothing printed for \d.* s; node 0, last line: works", found.evidence)
    assert sent.log().count("0: works\n") == 15
    ends_as_it_would(sent)
    assert kinds(sent) == ["start"]


@pytest.mark.sweep
def test_a_node_that_carries_out_no_order(jobs: Jobs) -> None:
    """Its runner is stuck. Slurm ends all of the job's processes, and starts the stage again: never are there two copies."""
    rules = HealthRules("restart", every=0.4, least=3.0)
    sent = train(jobs, rules, FAULT="hang", UNTIL="1")
    sent.says("1: waits for a device")
    program, runner = on_node(sent, 1)
    os.kill(runner, signal.SIGSTOP)
    sent.says("a node has not ended its program: Slurm starts the stage again", patience=240)
    assert until(lambda: not Path(f"/proc/{program}").exists(), 60)
    assert begins_again(jobs.slurm, sent.numbers["train"], lambda: sent.log().count("trn: train: Slurm job") > 1)
    assert sent.left() == "COMPLETED"
    assert sent.ended().attempt == 1


LONG = [
    ("Compiling module MODULE_1", "12"),
    ("neuronx-cc", "12"),
    ("grows", "12"),
    ("Saving checkpoint", "12"),
    ("Evaluating", "12"),
    ("merges the adapters", "14"),  # after its last step
]


@pytest.mark.parametrize(("said", "at"), swept(LONG, *LONG[:3]))
def test_what_takes_long_is_no_hang(said: str, at: str, jobs: Jobs) -> None:
    sent = train(jobs, HealthRules("restart", every=0.4, least=3.0), FAULT=said, AT=at, STEPS="14", SLOW="0.4")
    assert (sent.ended().code, sent.left()) == (0, "COMPLETED"), sent.log()
    assert told(sent) == []


def test_a_job_that_may_cost_no_more_saves_and_stops(jobs: Jobs) -> None:
    """Both nodes count."""
    sent = train(jobs, budget=Budget(usd=50.0, seconds=12.0), STEPS="600")
    state = sent.ended()
    assert (state.code, sent.left()) == (66, "FAILED"), sent.log()
    assert kinds(sent)[0] == "budget"
    first, last = told(sent)[0], told(sent)[-1]
    assert re.fullmatch(r"its nodes have cost 4\d\.\d\d of at most 50\.00 USD \(--max-usd\)", first.evidence)
    assert "is told to save" in sent.log("train.0")
    assert (sent.folder / "saved").exists()
    failed = records.failure(sent.folder, "train")
    assert failed is not None
    assert "of at most 50.00 USD (--max-usd): it saves and stops" in failed.last
    assert 12 <= health.tried(sent.folder).spent < 16
    assert last.kind == "budget"


@pytest.mark.sweep
def test_a_budget_ends_a_job_whose_file_system_is_full(jobs: Jobs) -> None:
    """No node finds the order, so all are ended when it is overdue."""
    sent = train(jobs, budget=Budget(usd=50.0, seconds=12.0), STEPS="6000")
    sent.says("1: step 3/6000")
    with file_system(sent.folder / "state", "4k"):
        fill(sent.folder / "state")
        assert sent.left(patience=300) == "FAILED", sent.log()
    assert [one.kind for one in told(sent)] == ["budget"]
    assert not (sent.folder / "saved").exists()
