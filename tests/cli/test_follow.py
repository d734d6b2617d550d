"""What `trn logs` says where there is nothing to print."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainium_cdk.cli import app as cli
from trainium_cdk.cli import follow
from trainium_cdk.errors import JobError
from trainium_cdk.jobs.backend import check_log
from trainium_cdk.jobs.status import JobStatus, LogChunk, Stage


def status(state: str = "COMPLETED") -> JobStatus:
    stages = (Stage("prepare", "1", "COMPLETED"), Stage("train", "2", state))
    return JobStatus("run-1", "script", "compute1", "trn1.32xlarge", 4, None, stages)


class Jobs:
    def __init__(self, state: str, chunks: Sequence[LogChunk]):
        self._state, self._chunks = state, chunks

    def logs(self, id: str, **_: object) -> Sequence[LogChunk]:
        return self._chunks

    def status(self, id: str) -> JobStatus:
        return status(self._state)


@pytest.mark.parametrize(
    ("state", "chunks", "options", "message"),
    [
        ("RUNNING", [], [], "there is no output yet. run-1: prepare COMPLETED, train RUNNING"),
        ("COMPLETED", [], [], "there is no output. run-1: prepare COMPLETED, train COMPLETED"),
        ("RUNNING", [], ["--offset", "7"], "there is no output after byte 7 yet. run-1"),
        ("COMPLETED", [], ["--offset", "7"], "there is no output after byte 7. run-1"),
        ("COMPLETED", [LogChunk("train", 7, b"")], ["--offset", "99"], "the log of train ends at byte 7. run-1"),
    ],
)
def test_there_is_no_output(
    state: str, chunks: list[LogChunk], options: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(follow, "backend", lambda *_: Jobs(state, chunks))
    cli.app(["logs", "run-1", *options], standalone_mode=False)
    shown = capsys.readouterr()
    assert shown.err.startswith(message)
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("stage", "node", "message"),
    [
        ("precompile", None, "run-1 has no stage 'precompile'; it has prepare, train. Choose one of them"),
        ("train", 4, "run-1 has nodes 0 to 3, not 4. Choose one of them"),
        ("prepare", 3, "the stage prepare runs on node 0 only, not on node 3. Leave out the node"),
    ],
)
def test_a_log_that_cannot_exist(stage: str, node: int | None, message: str) -> None:
    with pytest.raises(JobError) as refused:
        check_log(status(), stage, node)
    assert str(refused.value) == message
    check_log(status(), "prepare", 0)
    check_log(status(), "train", 3)
