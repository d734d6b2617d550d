"""The steps that a precompilation tries count in no figure of the training."""

from __future__ import annotations

import pytest

from tests.jobs.log_lines import usual
from tests.jobs.report.runs import BEGAN, run, status
from trainium_cdk.client.jobs.report import Run
from trainium_cdk.client.jobs.status import Stage


def made() -> Run:
    """20 steps of a training at 3800 sequences/s after 5 slow ones; before, 10 trial steps at 10/s. 80 more are to come."""
    stages = (
        Stage("precompile", "1", "COMPLETED", "", "n", 0, BEGAN, BEGAN + 3600),
        Stage("train", "2", "RUNNING", "", "n", None, BEGAN + 3600),
    )
    found = run(status(*stages), planned_steps=100)
    for stage, speeds in {"precompile": [10] * 10, "train": [100] * 5 + [3800] * 15}.items():
        for at, speed in enumerate(speeds, 1):
            found.feed(stage, usual(at).replace(b"%.2f" % (7e3 - at), b"%.2f" % speed))
    return found


def test_trial_steps_count_nowhere() -> None:
    found = made()
    assert (found.throughput, found.curves.step) == (3800.0, 20)
    assert found.left == pytest.approx(80 * 16384 / 3800)
    assert found.expected_cost == pytest.approx(found.price.of((20_000 + 80 * 16384 / 3800) / 3600))
