"""The summary of a run."""

from __future__ import annotations

from trainium_cdk.client.cli.follow import summarize
from trainium_cdk.jobs import JobLog, job_log


def read(*lines: str) -> JobLog:
    log = job_log()
    log.feed("train", "".join(f"{line}\n" for line in lines).encode())
    return log


def step(number: int, loss: float, speed: float) -> str:
    return (
        f"LOG Fri Nov 20 08:00:05 2026 - (0, {number}) step_loss : {loss} learning_rate : 1e-06 throughput : {speed} "
    )


def test_graphs_loss_and_throughput() -> None:
    log = read(
        "INFO ||PARALLEL_COMPILE||: Total graphs: 6",
        "INFO ||PARALLEL_COMPILE||: Total failed compilations: 1",
        step(1, 11.25, 3000.0),
        step(2, 9.5, 3400.0),
    )
    assert summarize(log) == [
        "compiled 6 graphs, 1 failed",
        "step 2: loss 9.5, from 11.25; 3,200.0 sequences/s on average",
    ]


def test_a_loss_that_became_nan_is_told() -> None:
    log = read(*(f"{{'loss': {loss}, 'learning_rate': 0.1, 'epoch': 1.0}}" for loss in (2.0, 1.5, "nan")))
    assert summarize(log) == ["3 logged steps: loss not a number since step 3, from 2"]


def test_nothing_to_report() -> None:
    assert summarize(job_log()) == []
