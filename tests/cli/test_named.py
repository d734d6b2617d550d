"""How users name jobs, and what `trn list` shows of them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import termios
import time
from typing import Any

import pytest

from trainium_cdk.client.cli import app, follow, named
from trainium_cdk.client.jobs.status import Foreign, JobStatus, Stage
from trainium_cdk.errors import JobError, TransportError, TrnError, UnknownJob

NOW = int(time.time())


def job(id: str, state: str = "RUNNING", user: str = "", submitted: int | None = None) -> JobStatus:
    stage = Stage("train", "7", state, started=NOW - 3700, ended=None if state == "RUNNING" else NOW - 100)
    return JobStatus(id, "script", "q", "trn1.32xlarge", 2, None, (stage,), user=user, submitted=submitted)


class Jobs:
    names_jobs = False

    def __init__(self, *found: JobStatus):
        self.found = {job.id: job for job in found}
        self.cancelled: list[str] = []

    def status(self, id: str, *, progress: bool = False) -> JobStatus:
        if id not in self.found:
            raise UnknownJob(f"there is no job {id}")
        return self.found[id]

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        return tuple(self.found.values())[:limit]

    def ids(self, limit: int) -> tuple[str, ...]:
        return tuple(self.found)[:limit]

    def listed(self, limit: int = 50) -> tuple[tuple[JobStatus, ...], tuple[Any, ...]]:
        return self.list(limit), (Foreign("theirs", "job.batch", "PENDING", "q", NOW - 60),)

    def cancel(self, id: str) -> JobStatus:
        if id == "b-2":
            raise TransportError("the head node does not answer")
        self.cancelled.append(id)
        return self.found[id]

    def wait(self, id: str, timeout: float | None, _: Any) -> JobStatus:
        return self.found[id]


JOBS = (
    job("bert-3", user="me", submitted=NOW - 60),
    job("a-1", "FAILED", "other", NOW - 7200),
    job("a"),
    job("b-2", "COMPLETED"),
)


@pytest.mark.parametrize(
    ("given", "found"),
    [("latest", "bert-3"), ("a", "a"), ("a-", "a-1"), ("be", "bert-3"), ("x-20261124-0123ab", "x-20261124-0123ab")],
)
def test_whole(given: str, found: str) -> None:
    assert named.resolve_id(Jobs(*JOBS), given) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("b", JobError, "2 jobs begin with b: bert-3, b-2. Give more of the id"),
        ("brt-3", UnknownJob, "there is no job brt-3. Did you mean bert-3"),
        ("frist", UnknownJob, "there is no job frist. Did you mean first-20261127-0123ab"),
        ("zzz", UnknownJob, "there is no job zzz$"),
        ("", UnknownJob, "there is no job"),
    ],
)
def test_not_one_job(given: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        named.resolve_id(Jobs(*JOBS, job("first-20261127-0123ab")), given)  # type: ignore[arg-type]
    with pytest.raises(UnknownJob, match="there are no jobs"):
        named.resolve_id(Jobs(), "latest")  # type: ignore[arg-type]


def run(monkeypatch: pytest.MonkeyPatch, jobs: Jobs, *words: str) -> int:
    monkeypatch.setattr(follow, "backend", lambda *_: jobs)
    return app.app(list(words), standalone_mode=False) or 0


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], ["bert-3", "a-1", "a", "b-2", "theirs"]),
        (["--state", "failed"], ["a-1"]),
        (["--state", "active", "--state", "COMPLETED"], ["bert-3", "a", "b-2", "theirs"]),
        (["--mine"], ["bert-3"]),
        (["--mine", "--user", "other"], ["a-1"]),
        (["--since", "1h"], ["bert-3", "theirs"]),
    ],
)
def test_list(
    options: list[str], found: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.setattr("time.time", lambda: float(NOW))
    assert run(monkeypatch, Jobs(*JOBS), "list", *options) == 0
    head, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert head == ["job", "state", "nodes", "queue", "age", "duration", "user", "reason"]
    assert [row[0] for row in rows] == found
    if not options:
        assert rows[0][4:7] == ["1m", "1h 1m", "me"]
        assert rows[1][4:7] == ["2h", "1h", "other"]
        assert rows[-1][1:] == ["PENDING", "", "q", "1m", "", "", "not of trn: job.batch"]


def test_a_job_whose_end_is_not_known_does_not_go_on_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    """Of yesterday: its node failed, and the scheduler has forgotten it."""
    prepared = Stage("prepare", "6", "COMPLETED", started=NOW - 90_000, ended=NOW - 89_000)
    lost = JobStatus("a", "script", "q", "?", 2, None, (prepared, Stage("train", "7", "LOST", started=NOW - 88_000)))
    assert named.duration(lost) == ""
    follow.show(lost)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[4] for row in rows] == ["duration", "16m 40s", ""]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_id_is_cut_at_any_width(width: int) -> None:
    """In a real terminal of that width. The reason may be folded, between words."""
    id = "gpt3-finetune-experiment-with-a-long-name-20261124-0123ab"
    reason = "waits for nodes: the queue has none that are free, and AWS has no capacity of this type"
    code = (
        "from trainium_cdk.client.cli.output import table\n"
        f"table('', ['job', 'state', 'nodes', 'queue', 'age', 'reason'], [[{id!r}, 'train RUNNING', '16', 'compute1', '2h', {reason!r}]])"
    )
    main, sub = pty.openpty()
    termios.tcsetwinsize(sub, (40, width))
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}
    with subprocess.Popen([sys.executable, "-c", code], stdin=sub, stdout=sub, env=env) as shown:
        os.close(sub)
        text = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(main, 10_000):
                text += piece
    os.close(main)
    assert shown.returncode == 0
    lines = text.decode().replace("\r", "").splitlines()
    assert any(id in line for line in lines)
    assert any("train RUNNING" in line for line in lines)
    assert "capacity" in text.decode()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("runing", "there is no state 'RUNING'. Did you mean RUNNING or PENDING? Use ACTIVE, "),
        ("activ", "there is no state 'ACTIV'. Did you mean ACTIVE?"),
        ("", "there is no state ''. Use ACTIVE, "),
    ],
)
def test_a_state_that_does_not_exist(state: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        run(monkeypatch, Jobs(*JOBS), "list", "--state", state)


@pytest.mark.parametrize("words", [("list", "--since", ""), ("logs", "bert-3", "--since", "")])
def test_an_empty_time_is_refused(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrnError, match="'' is neither a duration nor a time"):
        run(monkeypatch, Jobs(*JOBS), *words)


def test_several_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Jobs(*JOBS)
    assert run(monkeypatch, jobs, "status", "bert", "a-1", "--json") == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == ["bert-3", "a-1"]
    assert run(monkeypatch, jobs, "cancel", "bert", "bert-3", "b-2", "a-1") == 1
    assert jobs.cancelled == ["bert-3", "a-1"], "one that fails does not keep the others"
    assert "the head node does not answer" in capsys.readouterr().err
    assert run(monkeypatch, jobs, "status", "--wait", "b-2") == 0
    assert run(monkeypatch, jobs, "status", "--wait", "b-2", "a-1") == 1


def test_nothing_is_cancelled_if_one_of_the_names_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs(*JOBS)
    with pytest.raises(UnknownJob):
        run(monkeypatch, jobs, "cancel", "a-1", "nothing-there")
    assert jobs.cancelled == []
