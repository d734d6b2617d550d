"""Charts: axes enclose the values, lines are where the values are, nothing is drawn without values."""

from __future__ import annotations

import math
import re
from xml.etree.ElementTree import tostring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainium_cdk.client.drawing import HEIGHT, WIDTH, ChartLine, bars, chart, number, ticks
from trainium_cdk.client.jobs.report.curve import Curve

NUMBERS = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-9)


@pytest.mark.parametrize(
    ("values", "whole", "expected"),
    [
        ([0, 3000], True, [0, 1000, 2000, 3000]),
        ([1, 16], True, [0, 5, 10, 15, 20]),
        ([2.1, 11.3], False, [2, 4, 6, 8, 10, 12]),
        ([0.0, 0.0004], False, [0, 0.0001, 0.0002, 0.0003, 0.0004]),
        ([7, 7], True, [6, 7, 8]),
        ([0.0004, 0.0004 + 5e-20], False, [0.00036, 0.00038, 0.0004, 0.00042, 0.00044]),
        ([0.0, 4e-13], False, [0, 1e-13, 2e-13, 3e-13, 4e-13]),
    ],
)
def test_ticks(values: list[float], whole: bool, expected: list[float]) -> None:
    assert ticks(values, whole=whole) == expected


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans())
def test_ticks_enclose_any_values(values: list[float], whole: bool) -> None:
    found = ticks(values, whole=whole)
    room = (found[-1] - found[0]) * 1e-6
    assert found[0] - room <= min(values)
    assert max(values) <= found[-1] + room
    assert 2 <= len(found) <= 9
    assert found == sorted(set(found))


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans())
@example([264228199737.45596], True)
def test_each_tick_has_a_label_of_its_own(values: list[float], whole: bool) -> None:
    found = ticks(values, whole=whole)
    labels = [number(tick, found).replace(",", "") for tick in found]
    shown = [float(label.removesuffix("M")) * (1e6 if label.endswith("M") else 1) for label in labels]
    assert len({*labels}) == len(labels)
    room = (found[1] - found[0]) * 1e-6
    rounding = 4 * math.ulp(max(map(abs, found)))  # of the labels' numbers, read here again
    assert all(abs(one - tick) <= room + rounding for one, tick in zip(shown, found, strict=True)), labels


def test_a_long_curve_of_one_value_is_a_line() -> None:
    """Means of neighbours differ from it in their last digit."""
    curve = Curve()
    for step in range(20_000):
        curve.add(step, 0.0004)
    assert len({value for _, value in curve.all()}) > 1
    picture = tostring(chart([ChartLine("a", curve.all())], x="step", y="learning rate"), encoding="unicode")
    assert ">0.0004</text>" in picture


def test_a_stage_that_took_no_time_has_an_axis_from_zero() -> None:
    picture = tostring(
        bars([("a", [("train", 0.0, 0.0)])], x="minutes", unit="minutes", title="stages"), encoding="unicode"
    )
    assert ">-" not in picture
    assert ">0.2</text>" in picture
    assert ">stages</text>" in picture


@given(st.lists(st.tuples(st.integers(0, 10**9), NUMBERS), min_size=1, max_size=30))
def test_every_point_is_in_the_picture(points: list[tuple[float, float]]) -> None:
    picture = chart([ChartLine("a", points)], x="step", y="loss")
    drawn = [p.get("d", "") for p in picture.iter("path") if p.get("stroke-width") == "2"]
    places = [tuple(map(float, pair)) for d in drawn for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", d)]
    assert len(places) == (len(points) if len(points) > 1 else 0)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)


def test_lines_differ_without_colour_and_have_a_legend() -> None:
    picture = chart([ChartLine(f"job-{i}", [(1, i), (2, i)]) for i in range(3)], x="step", y="loss")
    drawn = {(p.get("stroke"), p.get("stroke-dasharray")) for p in picture.iter("path") if p.get("stroke-width") == "2"}
    assert len(drawn) == 3
    assert len({dashes for _, dashes in drawn}) == 3
    names = [p[0].text for p in picture.iter("path") if len(p)]
    assert names == ["job-0", "job-1", "job-2"]  # the dashes of a later one are above the same line of an earlier one
    assert all(f">job-{i}</text>" in tostring(picture, encoding="unicode") for i in range(3))


def test_of_many_lines_the_first_stands_out() -> None:
    picture = chart([ChartLine(f"job-{i}", [(1, i), (2, i)]) for i in range(40)], x="step", y="loss")
    assert [p[0].text for p in picture.iter("path") if p.get("stroke-width") == "2" and len(p)] == ["job-0"]
    assert [t.text for t in picture.iter("text")][-2:] == ["job-0", "39 others"]


def test_there_is_no_empty_picture() -> None:
    with pytest.raises(ValueError, match="a chart needs a point"):
        chart([ChartLine("a", [])], x="step", y="loss")
    with pytest.raises(ValueError, match="bars need a part"):
        bars([("a", [])], x="minutes", unit="minutes", title="stages")
