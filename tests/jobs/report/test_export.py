"""What `trn report -o FILE` refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.report.runs import CLUSTER, status
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import report
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Stage
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import Backend

LOG = b"".join(
    b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : %.1f learning_rate : 1.00e-04 throughput : 90.50 \n"
    % (i, 10 - i)
    for i in (1, 2, 3, 2, 3, 4)
)  # restarted after step 3, from a checkpoint of step 1


class Jobs:
    names_jobs = False

    cluster = CLUSTER

    def status(self, id: str, *, progress: bool = False) -> JobStatus:
        return status(Stage("train", "1", "PENDING" if id == "waits-1" else "COMPLETED", "waits for nodes"), id=id)

    history: Any = Backend.history

    def settings(self, id: str) -> dict[str, Any]:
        return {}

    def logs(self, id: str, *, stage: str, offset: int = 0) -> Iterator[LogChunk]:
        log = b"nothing\n" if id == "silent-1" else LOG
        yield from (LogChunk(stage, at, log[at : at + 50]) for at in range(offset, len(log), 50))


@pytest.fixture
def trn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(report, "backend", lambda *_: Jobs())
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli.app(["report", *words], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a-1", "-o", "missing/a.html"], "cannot write missing/a.html: No such file or directory"),
        (
            ["a-1", "-o", "x.csv"],
            "x.csv would be a table, and a report is a page. For each step as JSON: trn logs JOB --metrics",
        ),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], message: str, trn: Any, tmp_path: Path) -> None:
    with pytest.raises(TrnError) as error:
        trn(*words)
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []
