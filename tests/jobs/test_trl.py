"""What TRL's `sft` printed in real runs is read as a person reads it: `make conformance` runs it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainium_cdk.jobs.ending import error_patterns
from trainium_cdk.jobs.metrics import job_log
from trainium_cdk.runner.readers.collecting import Collector
from trainium_cdk.runner.readers.ending import why_it_ended
from trainium_cdk.runner.readers.records import Step

RUNS = yaml.safe_load(Path(__file__).with_name("trl.yaml").read_text("utf-8"))


def printed(run: dict[str, Any]) -> bytes:
    return run["log"].replace("⏎", "\r").encode()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["run"])
@pytest.mark.parametrize("piece", [1_000_000, 700])
def test_its_steps_are_counted_and_a_lost_loss_is_seen(run: dict[str, Any], piece: int) -> None:
    log, text = job_log(), printed(run)
    for at in range(0, len(text), piece):
        log.feed("train", text[at : at + piece])
    log.close()
    assert (log.steps, log.progress, log.lost_at) == (run["steps"], run["progress"], run.get("lost_at"))
    assert log.throughput == run.get("throughput")


@pytest.mark.parametrize("run", [run for run in RUNS if run["steps"]], ids=lambda run: run["run"])
def test_no_bar_of_another_work_is_the_trainings(run: dict[str, Any]) -> None:
    """Of a few examples that are tokenized, or a model's weights that are loaded, no step, total or time left is made."""
    log = job_log()
    steps = [record for _, record in log.feed("train", printed(run)) if isinstance(record, Step)]
    assert {step.total_steps for step in steps} == {None}
    assert len(steps) == run["steps"]
    assert log.course.position == log.last


@pytest.mark.parametrize("run", [run for run in RUNS if "why" in run], ids=lambda run: run["run"])
def test_why_it_ended_is_the_reason_of_the_first_that_failed(run: dict[str, Any]) -> None:
    collector = Collector()
    collector.feed(printed(run))
    assert why_it_ended(collector.close(), run["code"], 1, error_patterns()) == run["why"]
