"""The report in a browser: nothing is cut and nothing is too wide, on a screen and on a phone; it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.report import browser
from tests.jobs.report.runs import run, status, trained
from tests.jobs.report.test_page import WAITS, page, sweep
from trainium_cdk.client.jobs.report import Run


@pytest.fixture(params=["one", "several", "waits", "sweep", "large sweep"])
def runs(request: pytest.FixtureRequest) -> list[Run]:
    if request.param == "waits":
        return [run(status(*WAITS))]
    if "sweep" in request.param:  # 55 s of each: the last tick of the stages has a fraction
        return sweep({str(i): f"{3 + i}.5, {2 + i}.5" for i in range(3 if request.param == "sweep" else 40)})
    if request.param == "one":
        return [trained(steps=150, each=615_000.0)]
    return [trained(nodes, id=f"bert-large-with-a-long-name-20261120-{nodes:06x}") for nodes in (1, 4, 16)]


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_is_cut(runs: list[Run], width: int, tmp_path: Path) -> None:
    browser.available()
    content, window, cut = browser.measured(page(*runs), width, tmp_path)
    assert (content, cut) == (window, [])
    assert window <= width
