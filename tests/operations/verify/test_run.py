"""Whatever fails, whenever: a verification never costs more than its budget, leaves nothing, and says what is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.verify.world import FAULTS, Killed, World
from tests.support import swept
from trainium_cdk import engines
from trainium_cdk.errors import Stopped
from trainium_cdk.operations.verify.page import page, record
from trainium_cdk.operations.verify.plan import Plan, make
from trainium_cdk.operations.verify.run import Verification
from trainium_cdk.operations.verify.state import Run, load
from trainium_cdk.operations.verify.steps import resumed_at

PLANS = {engine: make(engine, None, None, None) for engine in engines.ENGINES}
PAUSES = (0.0, 1800.0, 86400.0)
"""Seconds until a killed program is started again; it may also never be."""
SECRETS = ("123456789012", "arn:", "i-1", "vpc-1", "user/me", "example")


def verification(world: World, run: Run, folder: Path) -> Verification:
    return Verification(
        run,
        folder,
        world.call,
        world.client,
        world,
        world.status,
        lambda _: None,
        clock=lambda: world.now,
        sleep=world.sleep,
    )


def history(
    plan: Plan,
    folder: Path,
    fault: tuple[int, str] | None,
    max_usd: float,
    pause: float | None = 0.0,
    slow: float = 1.0,
) -> tuple[World, Run, bool | None]:
    """One run, and what follows where it was killed. The last: whether it has passed; None where it was never started again."""
    folder.mkdir(parents=True, exist_ok=True)
    world = World(plan, fault, slow=slow)
    run = Run("0123456789ab", plan, max_usd, world.now)
    run.save(folder)
    passed: bool | None = None
    try:
        passed = verification(world, run, folder)()
    except Stopped:
        pass
    except Killed:
        world.fault = None
        if pause is None:
            world.pass_time(3 * 86400)
            return world, run, None
        world.pass_time(pause)
        found = load(folder)
        assert found is not None
        run = found
        passed = verification(world, run, folder)()
    run.save(folder)
    return world, run, passed


def check(world: World, run: Run, passed: bool | None) -> None:
    """What holds at the end of each history."""
    assert world.usd + run.plan.data <= run.max_usd + 0.01
    if passed is None:
        assert world.stack == "", "AWS itself has deleted it"
        return
    if not run.removed:  # it says so, and AWS deletes the stack
        assert world.held
        world.pass_time(2 * 86400)
        assert world.usd + run.plan.data <= run.max_usd + 0.01
    assert world.stack == ""
    assert world.held is (not run.removed)
    published = record(run, world.now, sandbox=False)
    text = page(published) + published.model_dump_json()
    assert not [secret for secret in SECRETS if secret in text]
    if run.removed:
        assert published.usd + 0.02 >= world.usd + (run.plan.data if run.charged else 0), (
            "what is printed is no less than the truth"
        )
        assert published.usd <= run.max_usd + 0.01


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_undisturbed(engine: str, tmp_path: Path) -> None:
    world, run, passed = history(PLANS[engine], tmp_path, None, 100)
    assert passed
    assert {done.end for done in run.done.values()} == {"passed"}
    assert list(run.done) == [step.name for step in run.plan.all]
    assert world.ended == 1
    check(world, run, passed)


def moments(engine: str, tmp_path: Path) -> Iterator[tuple[int, str, float | None]]:
    world, *_ = history(PLANS[engine], tmp_path / "first", None, 100)
    for number in range(len(world.calls)):
        for kind in FAULTS:
            for pause in (*PAUSES, None) if kind.startswith("killed") else (0.0,):
                yield number, kind, pause


@pytest.mark.parametrize("engine", swept(list(engines.ENGINES), "slurm"))
def test_each_call_fails_in_each_way(engine: str, tmp_path: Path) -> None:
    """Each call to AWS and each command, in seven ways; a killed program is started again at once, later, a day later, or never."""
    count = 0
    for number, kind, pause in moments(engine, tmp_path):
        folder = tmp_path / f"{number}-{kind}-{pause}"
        world, run, passed = history(PLANS[engine], folder, (number, kind), 100, pause)
        try:
            check(world, run, passed)
        except AssertionError as e:
            raise AssertionError(f"call {number} ({world.calls[number]}), {kind}, {pause}: {e}") from e
        count += 1
    assert count > 300


@pytest.mark.parametrize("engine", list(engines.ENGINES))
def test_the_budget_ends_at_each_step(engine: str, tmp_path: Path) -> None:
    """With budgets from the least to the highest, as fast as usual and as slow as may be."""
    plan = PLANS[engine]
    without, whole = set(), 0
    for slow in (1.0, 3.9):
        for number in range(25):
            budget = plan.least + 0.1 + (plan.highest - plan.least + 2) * number / 24
            world, run, passed = history(plan, tmp_path / f"{slow}-{number}", None, budget, slow=slow)
            check(world, run, passed)
            without |= {name for name, done in run.done.items() if "the rest of the budget" in done.reason}
            whole += bool(passed)
    assert without >= {"train", "work", "update"}
    assert whole


def test_a_step_that_is_stopped_is_followed_by_the_removal(tmp_path: Path) -> None:
    calls = history(PLANS["slurm"], tmp_path / "first", None, 100)[0].calls
    world, run, passed = history(PLANS["slurm"], tmp_path, (calls.index("trn logs"), "stopped"), 100)
    assert (passed, run.removed, run.stopped) == (False, True, True)
    assert [done.end for done in run.done.values()].count("not run") >= 4
    check(world, run, passed)


@pytest.mark.parametrize(
    ("steps", "before", "at"),
    [
        ([1, 2, 3, 3, 4], 3, 3),
        ([1, 2, 1, 2], 2, 1),
        ([1, 2, 3], 2, None),
        ([10, 20, 30], 30, None),  # a log of every tenth step
        ([91, 92], 100, 91),
        ([], 100, None),
        ([0, 1, 2, 3], 3, None),
        ([0, 1, 2, 3, 0, 4, 5], 3, 4),  # its checkpoint was of its last step
        ([0, 1, 2, 3, 0], 3, None),
        ([0, 91, 92], 100, 91),
    ],
)
def test_resumed_at(steps: list[int], before: int, at: int | None) -> None:
    assert resumed_at(steps, before) == at
