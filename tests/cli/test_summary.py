"""The summary of a run."""

from __future__ import annotations

from trainium_cdk.cli.follow import summarize
from trainium_cdk.jobs import Expected, Summary
from trainium_cdk.jobs.records import CompileCount, Step

PUBLISHED = Expected(4000.0, "published for 1 node, SDK 2.28")


def test_a_run_is_compared_with_published_results() -> None:
    summary = Summary(warmup=0)
    for record in (
        CompileCount("graphs", 6),
        CompileCount("failed", 1),
        Step(1, 11.25, None, 3000.0),
        Step(2, 9.5, None, 3400.0),
    ):
        summary.add(record)
    assert summarize(summary, PUBLISHED) == [
        "compiled 6 graphs, 1 failed",
        "step 2: loss 9.5, from 11.25; 3,200.0 sequences/s on average, 80% of 4,000 sequences/s "
        "(published for 1 node, SDK 2.28)",
    ]


def test_other_instance_types_are_not_compared() -> None:
    summary = Summary(warmup=0)
    summary.add(Step(1, 2.0, None, 1e6))
    assert summarize(summary, PUBLISHED) == ["step 1: loss 2, from 2; 1,000,000.0 sequences/s on average"]


def test_a_loss_that_became_nan_is_told() -> None:
    summary = Summary()
    for loss in (2.0, 1.5, None):
        summary.add(Step(None, loss))
    assert summarize(summary) == ["3 steps: loss not a number, from 2"]


def test_nothing_to_report() -> None:
    assert summarize(Summary()) == []
