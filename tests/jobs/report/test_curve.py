"""A curve of any length keeps its course in few points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.client.jobs.report.curve import POINTS, Curve, Curves
from trainium_cdk.runner.readers import Step


def test_a_long_run_is_averaged() -> None:
    curve = Curve()
    for step in range(1, 100_001):
        curve.add(step, step / 2)
    points = curve.all()
    assert POINTS / 2 <= len(points) <= POINTS
    assert all(abs(y - x / 2) < 1e-9 for x, y in points)
    assert (points[0][0], points[-1][0]) == (64.5, 99_984.5)


def test_what_a_restart_trains_again_is_replaced() -> None:
    curve = Curve()
    for step in [1, 2, 3, 4, 5, 3, 4, 5, 6]:
        curve.add(step, 10.0 * len(curve.points))
    assert [x for x, _ in curve.all()] == [1, 2, 3, 4, 5, 6]


@given(st.lists(st.integers(0, 5000), max_size=3000))
def test_points_are_few_and_in_order(steps: list[int]) -> None:
    curve = Curve()
    for step in steps:
        curve.add(step, 1.0)
    xs = [x for x, _ in curve.all()]
    assert xs == sorted(set(xs))
    assert len(xs) <= POINTS
    assert bool(xs) == bool(steps)


def test_only_metrics_with_values_have_a_curve() -> None:
    curves = Curves()
    curves.add(Step(None, loss=2.0))
    curves.add(Step(None, loss=1.5, grad_norm=0.1))
    assert {name: curve.all() for name, curve in curves.items()} == {
        "loss": [(1, 2.0), (2, 1.5)],
        "grad_norm": [(2, 0.1)],
    }
    assert (curves.step, curves.last) == (2, {"loss": 1.5, "grad_norm": 0.1})


def test_a_metric_without_a_value_in_the_newest_step_says_so() -> None:
    curves = Curves()
    for step, loss in ((1, 2.5), (2, 2.25), (3, None), (4, None)):
        curves.add(Step(step, loss=loss, throughput=9.0))
    assert curves.newest("loss") == "no number since step 2"
    assert curves.newest("throughput") == "9"
    curves.add(Step(5, loss=2.0))
    assert curves.newest("loss") == "2"


@pytest.mark.parametrize(
    ("each", "steps", "points"),
    [
        (0.3, 100, 0),  # 30 s: too short for means of 20 s
        (0.3, 1000, 14),
        (2.5, 100, 11),
        (60.0, 100, 99),  # the first has no time
    ],
)
def test_the_time_of_a_step_from_whole_second_stamps_is_no_zigzag(each: float, steps: int, points: int) -> None:
    """The reader gives 0.25, 0.333 and so on for the same 0.3 s, whenever the second has changed."""
    curves, since, second = Curves(), 0, 0
    for step in range(1, steps + 1):
        now = int(step * each)
        curves.add(Step(step, loss=1.0, seconds=(now - second) / (step - since) if now > second and since else None))
        if now > second:
            since, second = step, now
    found = curves.few("seconds", 300)
    assert len(found) == points
    assert all(abs(y - each) <= each / 20 for _, y in found)


def test_times_of_a_step_with_a_fraction_are_all_drawn() -> None:
    curves = Curves()
    for step in range(20):
        curves.add(Step(step, seconds=0.1 + step / 100))
    assert len(curves.few("seconds", 300)) == 20


@pytest.mark.parametrize(
    ("most", "xs"), [(10, [1, 2, 3, 4, 5, 6, 7]), (7, [1, 2, 3, 4, 5, 6, 7]), (4, [1.5, 3.5, 5.5, 7]), (1, [4])]
)
def test_fewer_points(most: int, xs: list[float]) -> None:
    curve = Curve()
    for x in range(1, 8):
        curve.add(x, 2.0 * x)
    assert curve.few(most) == [(x, 2 * x) for x in xs]
    assert Curve().few(most) == []
