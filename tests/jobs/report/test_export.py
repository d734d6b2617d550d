"""The metrics of jobs as files: what `trn plot` writes."""

from __future__ import annotations

import csv
import io
import json
import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.report.runs import CLUSTER, status
from trainium_cdk.cli import app as cli
from trainium_cdk.cli import plot
from trainium_cdk.drawing import png
from trainium_cdk.drawing.chart import Line, chart
from trainium_cdk.drawing.markup import element
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.records import Step, Steps
from trainium_cdk.jobs.report import export
from trainium_cdk.jobs.report.events import EventWriter
from trainium_cdk.jobs.status import JobStatus, LogChunk, Stage

TENSORBOARD = bytes.fromhex(
    "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c1b000000000000001a0d9e1309000000000000f8"
    "3f10ac022a0d0a0b0a046c6f7373150000803e9908deed"
)
"""What TensorBoard 2.21.0 writes itself (RecordWriter): the version, and loss 0.25 at step 300, both at time 1.5."""
LOG = b"".join(
    b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : %.1f learning_rate : 1.00e-04 throughput : 90.50 \n"
    % (i, 10 - i)
    for i in (1, 2, 3, 2, 3, 4)
)  # restarted after step 3, from a checkpoint of step 1


class Jobs:
    cluster = CLUSTER

    def status(self, id: str) -> JobStatus:
        return status(Stage("train", "1", "PENDING" if id == "waits-1" else "COMPLETED", "waits for nodes"), id=id)

    def settings(self, id: str) -> dict[str, Any]:
        return {}

    def logs(self, id: str, *, stage: str) -> Iterator[LogChunk]:
        log = b"nothing\n" if id == "silent-1" else LOG
        yield from (LogChunk(stage, at, log[at : at + 50]) for at in range(0, len(log), 50))


@pytest.fixture
def trn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(plot, "backend", lambda *_: Jobs())
    monkeypatch.chdir(tmp_path)
    return lambda *words: cli.app(["plot", *words], standalone_mode=False)


def test_events_are_what_tensorboard_writes() -> None:
    file = io.BytesIO()
    EventWriter(file, 1.5).scalar("loss", 0.25, 300, 1.5)
    assert file.getvalue() == TENSORBOARD


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 2**62), st.text(min_size=1, max_size=300)
)
def test_any_scalar_is_one_whole_record(value: float, step: int, tag: str) -> None:
    file = io.BytesIO()
    writer = EventWriter(file, 0.0)
    begin = file.tell()
    writer.scalar(tag, value, step, 0.0)
    record = file.getvalue()[begin:]
    [length] = struct.unpack("<Q", record[:8])
    assert len(record) == 12 + length + 4
    assert tag.encode() in record
    assert struct.pack("<f", value) in record


def test_a_table_has_every_step(trn: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trn("a-1", "b-2", "-o", "out.csv")
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["job", "step", "loss", "throughput", "tokens_per_second", "learning_rate", "grad_norm"]
    assert rows[1] == ["a-1", "1", "9.0", "90.5", "", "0.0001", ""]
    assert [row[:2] for row in rows[1:]] == [[job, str(i)] for job in ("a-1", "b-2") for i in (1, 2, 3, 2, 3, 4)]
    assert capsys.readouterr().out == f"{tmp_path / 'out.csv'}\n"
    trn("a-1", "-o", "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found[-1] == {"job": "a-1", "step": 4, "loss": 6.0, "throughput": 90.5, "learning_rate": 0.0001}
    assert len(found) == 6


def test_tensorboard_gets_a_folder_for_each_job(trn: Any, tmp_path: Path) -> None:
    trn("a-1", "b-2", "-o", "events")
    trn("a-1", "b-2", "-o", "events")
    files = sorted(f.relative_to(tmp_path).parts for f in tmp_path.rglob("*tfevents*"))
    assert [parts[:2] for parts in files] == [("events", "a-1"), ("events", "b-2")]


def test_an_array_has_more_members_than_a_process_open_files(tmp_path: Path) -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/dev/fd").iterdir()]) + 20, most))
    try:
        with export.as_events(tmp_path / "events") as take:
            for i in range(100):
                take(f"sweep-1/{i}", [1], Steps.of(Step(1, loss=1.0)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    assert len(list(tmp_path.glob("events/sweep-1/*/events.out.*"))) == 100


@pytest.mark.parametrize(("file", "begin"), [("p.svg", b"<svg"), ("p.png", b"\x89PNG\r\n\x1a\n")])
def test_pictures(file: str, begin: bytes, trn: Any, tmp_path: Path) -> None:
    trn("a-1", "silent-1", "--metric", "throughput", "-o", file)
    content = (tmp_path / file).read_bytes()
    assert content.startswith(begin)
    assert len(content) > 1500


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a-1", "--metric", "speed"], "there is no metric 'speed'. Use loss, throughput"),
        (["a-1", "--metric", "los"], "there is no metric 'los'. Did you mean loss?"),
        (["a-1", "-o", "a.gif"], "a.gif ends in .gif. Use .svg, .png, .csv, .json, or a folder"),
        (["a-1", "-o", "missing/a.csv"], "cannot write missing/a.csv: No such file or directory"),
        (["a-1", "--metric", "grad_norm"], "there is nothing to write: none of the jobs has grad_norm in its log"),
        (["waits-1", "-o", "x.csv"], "there is nothing to write: none of the jobs has metrics in its log"),
    ],
)
def test_what_cannot_be_written_is_said(words: list[str], message: str, trn: Any, tmp_path: Path) -> None:
    with pytest.raises(TrnError) as error:
        trn(*words)
    assert str(error.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("waits-1", "no loss of waits-1: the training has not begun (waits for nodes)"),
        ("silent-1", "no loss of silent-1: no line of its log is a training step that trn can read"),
    ],
)
def test_a_job_without_values_is_named(id: str, message: str, trn: Any, capsys: pytest.CaptureFixture[str]) -> None:
    trn("a-1", id)
    assert message in capsys.readouterr().err


def test_png_needs_its_extra_and_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = chart([Line("a", [(1, 2)])], x="step", y="loss")
    without = element("svg", xmlns="http://www.w3.org/2000/svg", width=20, height=20)
    with monkeypatch.context() as patch:
        patch.setattr(png, "element", lambda *_, **__: without)  # as where no letter can be drawn
        with pytest.raises(TrnError, match="this machine has no font"):
            png.png(drawn)
    monkeypatch.setitem(__import__("sys").modules, "resvg_py", None)
    with pytest.raises(TrnError, match=r'pip install "trainium-cdk\[png\]"'):
        png.png(drawn)
