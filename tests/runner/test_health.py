"""What is wrong with a training that runs, and what is done about it: pure functions of the pulses of its tasks."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.log_lines import USUAL
from trainium_cdk.client.cli.filters import Stream
from trainium_cdk.runner.readers import FOUND, Finding, read_finding
from trainium_cdk.runner.readers.log import JobLog, Lines, look
from trainium_cdk.runner.spec import HealthRules
from trainium_cdk.runner.work import health
from trainium_cdk.runner.work.health import Pulse, Tried, act, decide
from trainium_cdk.runner.work.process import Output, ProgramStart
from trainium_cdk.runner.work.pulse import Progress, Watcher

NOW = 1_795_000_000.0
RULES = HealthRules("restart", "stop")


def pulse(node: int = 0, ago: float = 10, steps: int = 100, **fields: Any) -> Pulse:
    """A node whose last step was so many seconds ago."""
    made = {
        "node": node, "task": node, "beat": NOW, "began": NOW - 9000, "step": steps or None, "steps": steps, "at": NOW - ago if steps else 0.0,
        "first": 900.0, "usual": 30.0, "longest": 90.0, "said": NOW - ago, "line": f"step {steps}", **fields,
    }  # fmt: skip
    return Pulse(**made)


NEW = Tried()
FEW: dict[str, Any] = {"usual": 2.0, "longest": 0.0, "gap": 3.0, "quiet": 300.0}
"""Of a training that began a moment ago."""


def kinds(pulses: list[Pulse], before: Tried = NEW, saved: float = 0.0) -> list[tuple[str, int]]:
    return [(one.kind, one.node) for one in decide(pulses, NOW, RULES, before, saved)]


@pytest.mark.parametrize(
    ("pulses", "found"),
    [
        ([], []),
        ([pulse(0), pulse(1)], []),
        ([pulse(0, 601), pulse(1, 650)], [("hang", 1)]),
        ([pulse(0, 590), pulse(1, 650)], []),  # one is not sure yet
        ([pulse(0, 700, step=41), pulse(1, 700, step=40)], [("hang", 1)]),
        ([pulse(0, 700, line="step 40"), pulse(1, 700, line="step 40"), pulse(2, 690, line="nrt waits")], [("hang", 2)]),
        ([pulse(0, 700), *(pulse(node, steps=0, said=NOW - 800 - node) for node in (1, 2))], [("hang", 2)]),
        ([pulse(0, 700, usual=100)], []),  # ten times the usual time
        ([pulse(0, 1100, usual=100)], [("hang", 0)]),
        ([pulse(0, 700, longest=300)], []),  # three times the longest one, as that of a checkpoint
        ([pulse(0, 3000, phase="compile")], []),
        ([pulse(0, 3000), pulse(1, 3000, phase="compile")], []),  # the others wait for it
        ([pulse(0, 8000, phase="compile")], [("hang", 0)]),
        ([pulse(0, 3500, phase="checkpoint")], []),
        ([pulse(0, 3700, phase="checkpoint")], [("hang", 0)]),
        ([pulse(0, 3000, free=NOW - 60)], []),  # a graph is loaded after it is compiled
        ([pulse(0, 3000), pulse(1, steps=0, said=0.0, free=NOW - 60)], []),
        ([pulse(0, 3000, free=NOW - 700)], [("hang", 0)]),
        ([pulse(0, 3000), pulse(1, 3000, free=NOW - 5)], []),
        ([pulse(0, 3000), pulse(1, 5, free=NOW - 10)], []),
        ([pulse(0, 3000, steps=1)], []),  # nobody knows how long a step takes
        ([pulse(0, 5500, steps=1)], [("start", -1)]),
        *(([pulse(0, 610, steps=steps, **FEW)], [("hang", 0)]) for steps in range(2, 10)),
        *(([pulse(0, 590, steps=steps, **FEW)], []) for steps in range(1, 10)),
        ([pulse(0, 2900, steps=7, **FEW | {"gap": 300.0})], []),  # ten times the longest time between two steps
        ([pulse(0, 3100, steps=7, **FEW | {"gap": 300.0})], [("hang", 0)]),
        ([pulse(0, 9000, steps=7, said=NOW - 5500, **FEW | {"gap": 3000.0})], [("start", -1)]),
        ([pulse(0, 1700, steps=7, **FEW | {"quiet": 1800.0})], []),  # another shape is traced for as long as the first one was
        ([pulse(0, 1900, steps=7, **FEW | {"quiet": 1800.0})], [("hang", 0)]),
        ([pulse(0, 1700, steps=7, **FEW), pulse(1, steps=0, quiet=1800.0)], []),  # on another node, for which this one waits
        ([pulse(0, 3000, steps=7, **FEW), pulse(1, 3000, steps=7, **FEW, phase="compile")], []),
        ([pulse(0, 3000, steps=7, **FEW, free=NOW - 500)], []),  # its graphs are loaded after they are compiled
        ([pulse(0, 3000, steps=7, **FEW, free=NOW - 700)], [("hang", 0)]),
        ([pulse(0, 3500, steps=5, **FEW, phase="checkpoint")], []),
        ([pulse(0, 3500, steps=5, **FEW, phase="evaluation")], []),
        ([pulse(0, 700, steps=7, **FEW), pulse(1, 10, steps=7, **FEW)], []),
        ([pulse(0, 700, steps=12), pulse(1, 700, steps=3, quiet=9000.0)], [("hang", 1)]),  # what is learnt counts
        ([pulse(steps=0, said=0.0, began=NOW - 5300)], []),  # a first compilation may take an hour
        ([pulse(steps=0, said=0.0, began=NOW - 5500)], [("start", -1)]),
        ([pulse(steps=0, said=0.0, began=NOW - 5500), pulse(1, steps=0, said=NOW - 60)], []),
        ([pulse(steps=0, said=0.0, began=NOW - 5500, phase="compile")], []),
        ([pulse(0), pulse(1, 700)], [("straggler", 1)]),
        ([pulse(0), pulse(1, 700, over=True)], []),
        ([pulse(0), pulse(1, 700, phase="evaluation")], []),
        ([pulse(0), pulse(1, steps=0, said=0.0)], []),  # it prints nothing at all
        ([pulse(0), pulse(1, beat=NOW - 400)], [("silent", 1)]),
        ([pulse(0, 700), pulse(1, beat=NOW - 400)], [("silent", 1), ("hang", 0)]),
        ([pulse(0, beat=NOW - 400), pulse(1, beat=NOW - 400)], [("silent", 0), ("silent", 1)]),
        ([pulse(0, nans=1, nan_at=NOW)], [("nan", 0)]),
        ([pulse(0, nans=3, nan_at=NOW), pulse(1, nans=3, nan_at=NOW)], [("nan", 0)]),
        ([pulse(0, nans=2, nan_at=NOW), pulse(1, nans=3, nan_at=NOW - 1, over=True)], [("nan", 1)]),
    ],
)  # fmt: skip
def test_what_is_wrong(pulses: list[Pulse], found: list[tuple[str, int]]) -> None:
    assert kinds(pulses) == found


@pytest.mark.parametrize(
    ("one", "before", "found"),
    [
        (pulse(0, 700, steps=3), Tried(usual=30.0, longest=90.0, first=100.0), ["hang"]),
        (pulse(0, 700, steps=3), Tried(usual=30.0, longest=90.0, first=900.0), []),
        (pulse(steps=0, began=NOW - 700), Tried(usual=30.0, longest=90.0, first=100.0), ["hang"]),
        (pulse(steps=0, began=NOW - 700), Tried(), []),
    ],
)
def test_a_later_attempt_knows_how_long_a_step_takes(one: Pulse, before: Tried, found: list[str]) -> None:
    assert [kind for kind, _ in kinds([one], before)] == found


@pytest.mark.parametrize(("saved", "found"), [(0.0, ["hang"]), (NOW - 620, ["hang"]), (NOW - 60, []), (NOW + 60, [])])
def test_checkpoints_that_are_written_are_no_hang(saved: float, found: list[str]) -> None:
    assert [kind for kind, _ in kinds([pulse(0, 700)], saved=saved)] == found


def test_what_is_told_of_a_hang() -> None:
    """For sixteen nodes, as for one."""
    pulses = [pulse(node, 725, step=40 if node > 11 else 41, line="x" * 500, rank=node * 32) for node in range(16)]
    [found] = decide(pulses, NOW, RULES)
    assert found.evidence.startswith(
        "no step for 12 min (usually one in 30 s): node 12, rank 384 at step 40, last line: xxx"
    )
    assert found.evidence.endswith("x; others are at step 41")
    assert (found.at, found.node, found.rank) == (NOW - 725, 12, 384)
    assert len(found.evidence) < 1000
    assert found.text == f"hangs since 2026-11-18 10:54 UTC: {found.evidence}"


HANG, LOST = [pulse(0, 700, step=40)], [pulse(0, nans=5, nan_at=NOW, nan_step=36)]


@pytest.mark.parametrize(
    ("pulses", "rules", "before", "ordered", "restarts"),
    [
        (HANG, HealthRules(), Tried(), "", 0),
        (HANG, HealthRules(nan="stop"), Tried(), "", 0),
        (HANG, HealthRules("restart"), Tried(), "restart", 1),
        (HANG, HealthRules("restart"), Tried(restarts=2, step=40), "restart", 3),
        (HANG, HealthRules("restart"), Tried(restarts=3, step=39), "restart", 1),  # it went on meanwhile
        (HANG, HealthRules("restart"), Tried(restarts=3, step=40), "stop", 3),
        (HANG, HealthRules("restart"), Tried(restarts=3, step=44), "stop", 3),
        ([pulse(0, 700, step=None)], HealthRules("restart"), Tried(restarts=3), "stop", 3),
        (LOST, HealthRules("restart"), Tried(), "", 0),
        (LOST, HealthRules(nan="stop"), Tried(), "stop", 0),
        ([pulse(0, nans=4, nan_at=NOW)], HealthRules(nan="stop"), Tried(), "", 0),  # it may come back
        ([pulse(0), pulse(1, 700)], RULES, Tried(), "", 0),  # a straggler is told
        ([pulse(0), pulse(1, beat=NOW - 400)], RULES, Tried(), "", 0),
        ([pulse(steps=0, said=0.0, began=NOW - 9000)], RULES, Tried(), "", 0),
    ],
)
def test_what_is_done(pulses: list[Pulse], rules: HealthRules, before: Tried, ordered: str, restarts: int) -> None:
    order, after = act(decide(pulses, NOW, rules, before), pulses, rules, before)
    assert (order.do if order else "", after.restarts) == (ordered, restarts)


# --- undisturbed histories ----------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    typical=st.sampled_from([0.2, 3.0, 25.0, 130.0]),
    tail=st.floats(1.5, 4.0),
    every=st.integers(20, 200),
    saving=st.floats(0, 1500),
    compiling=st.floats(0, 4200),  # with the first step below 90 minutes, from which on it is said
    says=st.booleans(),
)
def test_an_undisturbed_training_never_hangs(
    seed: int, typical: float, tail: float, every: int, saving: float, compiling: float, says: bool
) -> None:
    """Steps with heavy tails, checkpoints that take up to 25 minutes and are said or seen, a first compilation of more than an hour, and one in
    between. A node looks every 30 s."""
    chance, clock = random.Random(seed), Clock()  # noqa: S311  no secret
    one, saved, found = Progress(clock), 0.0, list[str]()
    look_at, rules = NOW + 30, HealthRules("restart", "stop")

    def spend(seconds: float) -> None:
        nonlocal look_at
        end = clock.now + seconds
        while look_at <= end:
            clock.now = look_at
            one.read(b"".join(printed), clock.now)
            printed.clear()
            p = one.pulse(0, 0)
            wrong = decide([p], clock.now, rules, Tried(), saved)
            found.extend(each.kind for each in wrong)
            assert act(wrong, [p], rules, Tried())[0] is None
            look_at += 30
        clock.now = end

    printed = [b"loading\n"]
    spend(compiling)
    for step in range(1, 400):
        spend(min(typical * chance.paretovariate(tail), 9 * max(typical, 60)))
        printed.append(b"step %d/400 | loss %.3f\n" % (step, 4 - step / 100))
        if step % every == 0:
            printed.append(b"Saving checkpoint to /efs/x\n" if says else b"epoch\n")
            for _ in range(int(saving / 60)):  # its files grow
                saved = saved if says else clock.now
                spend(60)
        if step == 150:
            printed.append(b"Compiling module MODULE_7\n")
            spend(compiling)
            printed.append(b"Compilation Successfully Completed\n")
            spend(200)
    assert found == []


# --- what a program tells ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Compiling module MODULE_1", "compile"),
        ("INFO ||NEURON_CACHE||: Compile cache path: /x", "compile"),
        ("Compilation Successfully Completed", ""),
        ("Saving checkpoint to /efs/x", "checkpoint"),
        ("Saved checkpoint to /efs/x", ""),
        ("writing shards of the checkpoint", "checkpoint"),
        ("validation begins: evaluating 500 samples", "evaluation"),
        ("step 4 | loss 2.5 | saving: no", ""),
        ("hello", ""),
    ],
)
def test_what_a_program_does_without_a_step(line: str, phase: str) -> None:
    one = Progress(Clock())
    one.read(f"step 3 | loss 3.0\n{line}\n".encode(), NOW)
    assert one.pulse(0, 0).phase == phase
    one.read(b"step 5 | loss 3.0\n", NOW)
    assert one.pulse(0, 0).phase == ""


@pytest.mark.parametrize(
    ("text", "step", "rank", "phase", "nans"),
    [
        ("12", 12, -1, "", 0),
        ('{"step": 12}', 12, -1, "", 0),
        ('{"step": 12, "loss": 3.4, "rank": 7, "phase": "checkpoint"}', 12, 7, "checkpoint", 0),
        ('{"step": 12, "loss": NaN}', 12, -1, "", 1),
        ('{"step": 12, "phase": "sleeping", "rank": true}', 12, -1, "", 0),
        ("", None, -1, "", 0),
        ("-1", None, -1, "", 0),
        ("1e9", None, -1, "", 0),
        ('{"step": true}', None, -1, "", 0),
        ('{"step": 99999999999999999}', None, -1, "", 0),
        ("[" * 5000, None, -1, "", 0),
        ("\x00\xff", None, -1, "", 0),
    ],
)
def test_the_file_of_a_program(text: str, step: int | None, rank: int, phase: str, nans: int) -> None:
    one = Progress(Clock())
    one.read_file("0", text.encode("latin-1"))
    told = one.pulse(0, 0)
    assert (told.step, told.rank, told.phase, told.nans, told.steps) == (step, rank, phase, nans, int(step is not None))
    one.read_file("0", text.encode("latin-1"))
    assert one.pulse(0, 0).steps == int(step is not None)  # the same is no other step


SPREAD: dict[str, Callable[[int], bytes]] = {
    "a line for each value": lambda step: (
        f"step {step} lr 1e-4\nstep {step} loss 3.1\nstep {step} tok/s 900\n".encode()
    ),
    "a loss at some steps": lambda step: f"step {step} lr 1e-4 {'' if step % 10 else 'loss 3.1'}\n".encode(),
}
"""Lines without a loss, which is not lost."""


@pytest.mark.parametrize("printed", [*USUAL.values(), *SPREAD.values()], ids=[*USUAL, *SPREAD])
def test_steps_of_the_programs_of_all_kinds(printed: Callable[[int], bytes]) -> None:
    """The runner has none of the kinds' own readers."""
    one = Progress(Clock())
    for step in range(20):
        one.read(printed(step) + b"\n", NOW)
    assert one.steps >= 10
    assert (one.phase, one.nans) == ("", 0)


def test_after_its_last_step_a_program_may_take_long() -> None:
    one = Progress(Clock())
    for step in range(1, 21):
        one.read(f"step {step}/20 | loss 3.0\n".encode(), NOW)
    one.read(b"merges the adapters\n", NOW)
    assert one.pulse(0, 0).phase == "end"


@pytest.mark.parametrize(("said", "longest"), [("Compiling module MODULE_1", 60.0), ("waits for data", 2400.0)])
def test_the_longest_time_between_steps_is_none_of_a_compilation(said: str, longest: float) -> None:
    clock = Clock()
    one = Progress(clock)
    for step in range(1, 21):
        clock.now += 2400 if step in (2, 12) else 60
        one.read(f"step {step} | loss 3.0\n".encode(), clock.now)
        if step == 11:
            one.read(f"{said}\n".encode(), clock.now)
    assert (one.pulse(0, 0).usual, one.pulse(0, 0).longest) == (60.0, longest)


def test_two_sources_of_the_same_steps() -> None:
    """What neither tells anew is no step."""
    clock, one = Clock(), Progress(Clock())
    for step in range(5):
        one.read(b"step %d | loss 3\n" % step, NOW)
        one.read_file("0", str(step).encode())
    steps = one.steps
    for _ in range(5):
        clock.now += 30
        one.read(b"waits\n", clock.now)
        one.read_file("0", b"4")
    assert one.steps == steps


def test_a_look_does_not_grow_with_what_is_printed(tmp_path: Path) -> None:
    """What passes is only kept, and of it the end: ten times as many lines between two looks take a look no longer."""
    (tmp_path / "state").mkdir()
    one = Watcher(tmp_path, "train", "1-0", 0, 0, HealthRules(), Output(tmp_path / "log"))
    took = {}
    for times in (1, 10, 1, 10):
        lines = b"".join(b"step %d/100000 | loss 3.4 | lr 1e-4 | 812 ms | 12000 tok/s\n" % i for i in range(6000))
        for _ in range(times):
            for at in range(0, len(lines), 4096):
                one.hear(lines[at : at + 4096])
        began = time.process_time()
        one.look()
        took[times] = min(took.get(times, 1e9), time.process_time() - began)
    assert took[10] < 3 * took[1]


def test_a_node_that_cleans_its_temporary_files_is_watched_on(tmp_path: Path) -> None:
    """As systemd-tmpfiles does with a folder of ten days."""
    (tmp_path / "state").mkdir()
    one = Watcher(tmp_path, "train", "1-0", 0, 0, HealthRules(), Output(tmp_path / "log"))
    [start] = one.prepare([ProgramStart(["true"], str(tmp_path), {})])
    Path(start.variables["TRN_PROGRESS"]).parent.rmdir()
    one.hear(b"step 4 | loss 3\n")
    one.look()
    assert health.pulses(tmp_path, "train", "1-0")[0].step == 4


def test_the_folder_of_a_running_program_stays_of_a_killed_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the other runner is in a container, and its number names no process here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = (
        "import contextlib, os, time; from trainium_cdk.runner.work.pulse import _new_folder\n"
        "os.getpid = lambda: 4194305\n"
        "held = contextlib.ExitStack(); print(_new_folder(held), flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as other:
        try:
            assert other.stdout
            theirs = Path(other.stdout.readline().strip())
            mine = Watcher(tmp_path, "train", "1-0", 0, 0, HealthRules(), Output(tmp_path / "log"))
            [start] = mine.prepare([ProgramStart(["true"], str(tmp_path), {})])
            assert theirs.is_dir()
        finally:
            other.kill()
    mine.end()
    assert not Path(start.variables["TRN_PROGRESS"]).parent.exists()
    mine = Watcher(tmp_path, "train", "1-0", 0, 0, HealthRules(), Output(tmp_path / "log"))
    mine.prepare([ProgramStart(["true"], str(tmp_path), {})])
    assert not theirs.exists()
    mine.end()


# --- records ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path


def test_records_return(job: Path) -> None:
    made = [pulse(0), pulse(1, 30, nan_step=4)]
    for one in made:
        health.write_pulse(job, "train", "7-0", one)
    health.write_pulse(job, "train", "7-0-1", pulse(5))
    assert health.pulses(job, "train", "7-0") == made
    found = [Finding("hang", NOW, 1, 33, "no step")]
    health.write_found(job, "train", found)
    assert health.found(job, "train") == tuple(found)
    health.write_tried(job, Tried(2, 40, seconds=3.5, run="a"))
    assert health.tried(job) == Tried(2, 40, seconds=3.5, run="a")
    health.write_order(job, "train", "7-0", health.Order("restart", "hangs", NOW))
    assert health.order(job, "train", "7-0") == health.Order("restart", "hangs", NOW)


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"node": 1}', '{"do": "rm -rf", "why": 7}', '{"findings": [7]}', "9" * 70_000]
)
def test_damaged_records_are_none(content: str, job: Path) -> None:
    for name in ("train.1-0.0.pulse.json", "train.1-0.order.json", "train.found.json", "health.json"):
        (job / "state" / name).write_text(content)
    told = (
        health.pulses(job, "train", "1-0"),
        health.order(job, "train", "1-0"),
        health.found(job, "train"),
        health.tried(job),
    )
    assert told == ([], None, (), Tried())


def test_what_a_run_takes_is_counted_once() -> None:
    one = Tried().took("a", 5).took("a", 9).took("b", 2).took("b", 3)
    assert one.spent == 12


@pytest.mark.parametrize(
    "text",
    [
        "", FOUND, f"{FOUND}7", f"{FOUND}[]", f"{FOUND}{{}}", FOUND + json.dumps({"kind": "hang", "at": "x", "evidence": ""}),
        FOUND + '{"kind": "hang", "at": 1e999, "evidence": ""}', FOUND + json.dumps({"kind": "a\x1b[31m", "at": 1, "evidence": ""}),
        FOUND + json.dumps({"kind": "hang", "at": 1, "evidence": "a\nb"}), FOUND + '{"kind": "hang", "at": -1, "evidence": ""}',
    ],
)  # fmt: skip
def test_what_is_no_finding(text: str) -> None:
    assert read_finding(text) is None
    assert look(text.encode() + b"\n")[1] == ()


def test_findings_of_a_log() -> None:
    """Those that are so now. Another attempt begins without those of the one before, but for what is of all."""
    hang, budget = Finding("hang", NOW, 1, evidence="step 9 | loss 3"), Finding("budget", NOW, evidence="80 USD")
    log = JobLog(Lines())
    log.feed("train", f"step 4 | loss 3\n{hang.line}\n{budget.line}\n{hang.line}\n".encode())
    assert log.findings == [budget, hang]
    assert log.last is not None
    assert log.last.step == 4  # what a finding tells is no step
    log.feed("train", b"trn: train: Slurm job 7 on n-[1-2], 2026-11-27T00:00:00Z\n")
    assert log.findings == [budget]
    log.feed("train", f"{hang.line}\n{dataclasses.replace(hang, over=True).line}\n".encode())
    assert log.findings == [budget]


def test_a_finding_among_the_metrics() -> None:
    """`trn logs --metrics`."""
    stream = Stream(None, metrics=True, last=None)
    told = json.loads(stream.feed("train", f"{Finding('hang', NOW, 1, evidence='no step').line}\n".encode()))
    assert told == {
        "stage": "train", "record": "Finding", "kind": "hang", "at": NOW, "node": 1, "rank": -1, "evidence": "no step", "over": False,
    }  # fmt: skip


def test_a_loss_that_the_trainer_filters() -> None:
    """Hugging Face's Trainer prints 0 for a loss that is NaN: its norm tells. A norm that is infinite now and then, as with loss scaling, is none."""
    told = Progress()
    line = "{{'loss': '{}', 'grad_norm': '{}', 'learning_rate': '0.001', 'epoch': '0.1'}}\n"
    told.read("".join([line.format(2.5, 1.1), line.format(2.4, "inf"), line.format(2.3, 1.0)]).encode(), 1.0)
    assert told.pulse(0, 0).nans == 0
    told.read(line.format(0, "nan").encode() * 2, 2.0)
    one = told.pulse(0, 0)
    assert (one.nans, [each.kind for each in decide([one], one.beat, HealthRules())]) == (2, ["nan"])
