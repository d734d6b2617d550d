"""Goodput: what a fault costs, and the cheap half of `make bench GOODPUT=1` on a real Slurm and a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

import sandbox.kubernetes
import sandbox.slurm
from tests.support import need
from tools.benchmarks.goodput.figure import DATA, EACH, Cost, Fault, Seen, cost, faults, goodput, hours
from tools.benchmarks.goodput.histories import false_alarms
from tools.benchmarks.goodput.kubernetes import kubernetes
from tools.benchmarks.goodput.run import FAST, MOST, Run, share
from tools.benchmarks.goodput.slurm import slurm

SLURM, EKS = "slurm", "eks"


@pytest.mark.parametrize(
    ("kind", "engine", "watched", "known", "machine"),
    [
        ("hang", SLURM, True, 600 + 90, 0),
        ("hang", SLURM, False, 28_800, 0),
        ("nan", SLURM, True, 5 * 30 + 90, 600 + 360),
        ("nan", EKS, False, 28_800, 0),
        ("dead", SLURM, True, 180, 45 + 360),
        ("dead", SLURM, False, 180, 45 + 360),
        ("dead", EKS, True, 350, 60 + 360),
        ("spot", SLURM, True, 60, 45 + 360),
        ("disk", SLURM, False, 0, 600 + 360),
        ("device", SLURM, True, 70, 45 + 360),
        ("device", SLURM, False, 0, 600 + 360),
    ],
)
def test_what_a_fault_costs(kind: str, engine: str, watched: bool, known: float, machine: float) -> None:
    """The rules of the runner and published times as they are, what was measured, and the steps since the checkpoint."""
    seen = Seen(Fault(kind, 0, 10_000, 20), begin=7.5, redone=4)
    assert cost(seen, engine, watched=watched) == Cost(known, machine, 7.5 + 120, 100)


def test_goodput_is_what_new_steps_take_of_what_is_paid() -> None:
    assert goodput([Cost(100, 50, 30, 20)] * 2, 3600) == 3600 / 4000
    assert hours([Cost(100, 50, 30, 20)] * 2, 0.9) == pytest.approx(0.5)


def test_the_trace() -> None:
    """A fault every 3 hours on 16 nodes, of each kind; after 20 minutes at least, and the local training has two checkpoints before each."""
    trace = faults()
    assert len(trace) * 3 * 3600 == DATA["trace"]["seconds"]
    assert {one.kind for one in trace} == {"hang", "dead", "spot", "nan", "device", "disk"}
    assert all(0 <= one.node < 16 for one in trace)
    assert [one.step // EACH for one in trace] == [2 * (number + 1) for number in range(len(trace))]
    assert all(one.step % EACH for one in trace)


def test_an_undisturbed_training_is_left_alone() -> None:
    assert false_alarms(2, hours=3) == 0


def losses(last: int) -> dict[int, set[str]]:
    """Those at the checkpoints of an undisturbed training."""
    state, made = 1, {}
    for step in range(1, last + 1):
        state = (state * 1_103_515_245 + step) % 2**31
        if step % EACH == 0:
            made[step] = {str(4 - step / 1000 + state / 2**35)}
    return made


def check(run: Run, starts: int) -> None:
    """It has done every step, none of them twice at a time, and no more of them again than since the checkpoint."""
    assert (run.copies, run.attempts) == (0, starts)
    assert run.saved == losses(run.steps)
    assert [one.redone for one in run.seen] == [(fault.step - 1) % EACH for fault in run.faults]
    assert all(0 < one.begin < 120 for one in run.seen)


def test_a_training_that_hangs_and_loses_a_node_goes_on(tmp_path: Path) -> None:
    need(sandbox.slurm.available() is None, str(sandbox.slurm.available()))
    with slurm(tmp_path, 2) as engine:
        check(Run(engine, 2, [Fault("hang", 1, 0, 12), Fault("dead", 1, 0, 21)], FAST).carry_out(), starts=3)
        took = share(engine, 10)
    assert took < 4 * MOST, f"{took:.2%} of a core, on a machine that does other things, too"


@pytest.mark.sweep
def test_the_same_on_kubernetes(tmp_path: Path) -> None:
    need(sandbox.kubernetes.available() is None, str(sandbox.kubernetes.available()))
    with kubernetes(tmp_path) as engine:
        check(Run(engine, 2, [Fault("hang", 1, 0, 12), Fault("dead", 1, 0, 21)], FAST).carry_out(), starts=3)
