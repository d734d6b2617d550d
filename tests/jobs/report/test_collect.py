"""The report of jobs on a real Slurm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, status
from trainium_cdk.client.jobs.report import collect_all, report
from trainium_cdk.client.jobs.status import Stage
from trainium_cdk.errors import TransportError, UnknownJob
from trainium_cdk.jobs import LogChunk, Script, SlurmBackend

TRAINS = b"""#!/bin/bash
for i in 1 2 3; do
  printf 'LOG Fri Nov 20 09:00:05 2026 - (0, %s) step_loss : %s.5 learning_rate : 2.80e-06 throughput : 100.00 \\n' "$i" "$((9 - i))"
done
printf 'LOG Fri Nov 20 09:00:05 2026 - (0, 4) step_loss : 1.25 learning_rate : 2.80e-06 throughput : 100.00 '
if [ "$1" = fail ]; then exit 3; fi
"""


def script(*args: str) -> Script:
    return Script(filename="train.sh", content=TRAINS, args=args, precompile=False, env={"SECRET": "hidden"})


def test_jobs_on_slurm(backend: SlurmBackend) -> None:
    ids = [backend.submit(script(word)).id for word in ("pass", "fail")]
    for id in ids:
        backend.wait(id, 120)
    runs = collect_all(backend, ids)
    for made, state in zip(runs, ("COMPLETED", "FAILED"), strict=True):
        assert made.status.state == state
        assert made.curves["loss"].all() == [(1, 8.5), (2, 7.5), (3, 6.5), (4, 1.25)]
        assert (made.curves.step, made.throughput, made.restarts, made.problem) == (4, 100.0, 0, "")
        seconds = made.seconds(made.status.stages[-1])
        assert seconds is not None
        assert made.cost == pytest.approx(21.50 * seconds / 3600)
        assert "hidden" not in str(made.settings)
    assert [made.settings["args"] for made in runs] == [["pass"], ["fail"]]
    page = report(runs, backend.cluster, CATALOG, BEGAN)
    assert "train FAILED" in page
    assert "Exit code 3" in page


def test_a_last_line_without_its_end_is_read() -> None:
    line = b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : 8.5 learning_rate : 1e-06 throughput : 1 "
    found = status(Stage("train", "1", "COMPLETED", "", "n1", 0, BEGAN, BEGAN + 60))
    pieces = [LogChunk("train", 0, line % 1 + b"\n"), LogChunk("train", 0, line % 2)]
    jobs = SimpleNamespace(cluster=CLUSTER, history=lambda _: (found, {}, {}), logs=lambda *_, **__: pieces)
    assert collect_all(cast("Any", jobs), [found.id])[0].curves["loss"].all() == [(1, 8.5), (2, 8.5)]


def test_a_job_that_does_not_exist(backend: SlurmBackend) -> None:
    with pytest.raises(UnknownJob, match="there is no job 'never-1'"):
        collect_all(backend, ["never-1"])


def test_a_log_that_cannot_be_read_is_said(backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    id = backend.submit(script("pass")).id
    backend.wait(id, 120)

    def cut(*_: object, **__: object) -> object:
        yield LogChunk(
            "train", 0, b"LOG Fri Nov 20 09:00:05 2026 - (0, 1) step_loss : 8.5 learning_rate : 1e-06 throughput : 1 \n"
        )
        raise TransportError("the head node does not answer")

    monkeypatch.setattr(backend, "logs", cut)
    history = backend.history(id)
    assert history[2].keys() == {"train"}
    monkeypatch.setattr(
        backend, "history", lambda _: (*history[:2], {})
    )  # as of a log that is too large for one answer
    [made] = collect_all(backend, [id])
    assert made.problem == "the log of train cannot be read: the head node does not answer"
    assert made.curves["loss"].all() == [(1, 8.5)]
