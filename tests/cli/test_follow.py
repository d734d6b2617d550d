"""What `trn logs` says where there is nothing to print, and the metrics that it prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow
from trainium_cdk.client.jobs.backend import check_log
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Stage
from trainium_cdk.errors import JobError


def status(state: str = "COMPLETED") -> JobStatus:
    stages = (Stage("prepare", "1", "COMPLETED"), Stage("train", "2", state))
    return JobStatus("run-1", "script", "compute1", "trn1.32xlarge", 4, None, stages)


class Jobs:
    names_jobs = False

    def __init__(self, state: str, chunks: Sequence[LogChunk]):
        self._state, self._chunks = state, chunks

    def logs(
        self, id: str, *, changed: Callable[[JobStatus], None], tail: int | None, **_: object
    ) -> Sequence[LogChunk]:
        assert tail is None, "the last lines are not the last metrics"
        changed(status(self._state))
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


def step(number: int) -> str:
    return (
        f"LOG Fri Nov 20 08:00:{number:02} 2026 - (0, {number}) step_loss : 9.5 learning_rate : 2.80e-06 throughput : 6497.86\n"
        f"2026-11-20T08:00:{number:02}Z a line without metrics\n"
    )


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ([], [1, 2, 3, 4, 5, 6, 7]),
        (["--tail", "2"], [6, 7]),
        (["--tail", "0"], []),
        (["--tail", "99"], [1, 2, 3, 4, 5, 6, 7]),
        (["--since", "2026-11-20T08:00:04"], [4, 5, 6, 7]),  # the time of the step itself
        (["--since", "2026-11-20T08:00:04", "--tail", "1"], [7]),
    ],
)
def test_the_last_metrics(
    options: list[str], steps: list[int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Of those of the lines that the other options select; the last line has no end."""
    log = "".join(map(step, range(1, 8))).encode().removesuffix(b"\n")
    log = (
        b"trn: train: node 1 of 2, attempt 0, 2026-11-20T07:00:00Z\n" * ("--tail" in options) + log[: log.rindex(b"\n")]
    )
    chunks = [LogChunk("train", at, log[at : at + 100]) for at in range(0, len(log), 100)]
    monkeypatch.setattr(follow, "backend", lambda *_: Jobs("COMPLETED", chunks))
    cli.app(["logs", "run-1", "--metrics", *options], standalone_mode=False)
    shown = capfdbinary.readouterr()
    assert [json.loads(line)["step"] for line in shown.out.splitlines()] == steps
    assert b"\nstep 7: loss 9.5" in shown.err


def test_without_metrics_it_says_what_to_print(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = b"trn: train: Slurm job 2 on n, 2026-11-20T08:00:00Z\nbegins\nmetrics at 3.4 after 10\ntrn: ends\n"
    monkeypatch.setattr(follow, "backend", lambda *_: Jobs("COMPLETED", [LogChunk("train", 0, log)]))
    cli.app(["logs", "run-1", "--metrics"], standalone_mode=False)
    shown = capfd.readouterr()
    assert [json.loads(line)["record"] for line in shown.out.splitlines()] == ["Start"]
    assert shown.err.splitlines()[-1] == (
        "no line is a training step that trn can read. In the script, print one line for each step, for example "
        '{"step": 10, "loss": 3.4} or: step 10 loss 3.4. The last line of the log is: metrics at 3.4 after 10'
    )


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


def follows(monkeypatch: pytest.MonkeyPatch, chunks: Sequence[tuple[str, bytes]], *options: str) -> None:
    """`trn logs -f` of a job whose log comes in these pieces."""
    found = [LogChunk(stage, 0, data) for stage, data in chunks]
    monkeypatch.setattr(follow, "backend", lambda *_: Jobs("COMPLETED", found))
    cli.app(["logs", "run-1", "-f", *options], standalone_mode=False)


def test_trial_steps_of_a_precompile_count_nowhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trials = "".join(step(at).replace("6497.86", "10.00") for at in range(1, 11)).encode()
    warm = "".join(step(at).replace("6497.86", "100.00") for at in range(1, 6)).encode()
    train = "".join(step(at).replace("6497.86", "3800.00").replace("9.5", "7.5") for at in range(6, 21)).encode()
    follows(monkeypatch, [("precompile", trials), ("train", warm + train)], "--metrics")
    shown = capfd.readouterr()
    assert [json.loads(line)["stage"] for line in shown.out.splitlines()] == ["precompile"] * 10 + ["train"] * 20
    assert shown.err.splitlines()[-1] == "step 20: loss 7.5, from 9.5; 3,800.0 sequences/s on average; 1 s a step"
    follows(monkeypatch, [("precompile", trials)])
    assert "sequences/s" not in capfd.readouterr().err


TRIAL = b"{'loss': 9.0, 'learning_rate': 0.1, 'epoch': 0.1}"
"""The last line of a stage, which does not end."""


@pytest.mark.parametrize(
    ("options", "out"),
    [
        (["--metrics"], ["precompile 9.0", "train 3.0"]),
        ([], [TRIAL.decode(), "hello from train", TRIAL.decode().replace("9.0", "3.0")]),
    ],
)
def test_a_stage_ends_the_last_line_of_the_one_before(
    options: list[str], out: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    train = b"hello from train\n" + TRIAL.replace(b"9.0", b"3.0") + b"\n"
    follows(monkeypatch, [("precompile", TRIAL), ("train", train)], *options)
    lines = capfd.readouterr().out.splitlines()
    if "--metrics" in options:
        lines = [f"{one['stage']} {one['loss']}" for one in map(json.loads, lines)]
    assert lines == out
