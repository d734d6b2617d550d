"""The metrics of jobs as a table: `trn report -o FILE.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.report.runs import CLUSTER, run, status
from trainium_cdk.cli import app as cli
from trainium_cdk.cli import report
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs import Backend
from trainium_cdk.jobs.report.export import write_csv
from trainium_cdk.jobs.status import JobStatus, LogChunk, Stage
from trainium_cdk.runner.readers.records import Step

SWEEP = ({"lr": "1e-4", "step": "9"}, {"lr": "3e-4"})

LOG = b"".join(
    b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : %.1f learning_rate : 1.00e-04 throughput : 90.50 \n"
    % (i, 10 - i)
    for i in (1, 2, 3, 2, 3, 4)
)  # restarted after step 3, from a checkpoint of step 1

MORE = ("seconds", "validation_loss", "test_loss")


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


def test_a_table_has_every_step(trn: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trn("a-1", "b-2", "silent-1", "-o", "out.csv")
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["job", "step", "loss", "throughput", "tokens_per_second", "learning_rate", "grad_norm", *MORE]
    assert rows[1] == ["a-1", "1", "9.0", "90.5", "", "0.0001", "", "", "", ""]
    assert [row[:2] for row in rows[1:]] == [[job, str(i)] for job in ("a-1", "b-2") for i in (1, 2, 3, 2, 3, 4)]
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'out.csv'}\n"
    assert "no metrics of silent-1: no line of its log is a training step that trn can read" in shown.err


def test_a_table_of_a_sweep_has_the_values_of_its_members() -> None:
    out = io.StringIO()
    found = [status(Stage("train", "1", "COMPLETED", values=values), id=f"a-1/{n}") for n, values in enumerate(SWEEP)]
    write_csv(out, map(run, found), [("a-1/1", 1, Step(1, 2.5)), ("a-1/0", 1, Step(1, 3.5))])
    rows = list(csv.reader(out.getvalue().splitlines()))
    assert rows[0][:5] == ["job", "sweep.lr", "sweep.step", "step", "loss"]
    assert [row[:5] for row in rows[1:]] == [["a-1/1", "3e-4", "", "1", "2.5"], ["a-1/0", "1e-4", "9", "1", "3.5"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a-1", "-o", "missing/a.csv"], "cannot write missing/a.csv: No such file or directory"),
        (["waits-1", "-o", "x.csv"], "there is nothing to write: none of the jobs has metrics in its log"),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], message: str, trn: Any, tmp_path: Path) -> None:
    with pytest.raises(TrnError) as error:
        trn(*words)
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []
