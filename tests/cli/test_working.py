"""What a command shows that takes a while: on a terminal, in a pipe, and what it knows of earlier runs."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import completed
from trainium_cdk.cli import working as module
from trainium_cdk.cli.working import durations, line, working

HISTORY = "trainium-cdk/durations.json"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / HISTORY


@pytest.mark.parametrize(
    ("seconds", "past", "at", "wanted"),
    [
        (3, [], "", "it: 3s"),
        (3, [], "1 of 9 resources", "it: 1 of 9 resources, 3s"),
        (190, [600], "", "it: 3m 10s, about 6m 50s left (1 earlier run here)"),
        (60, [100, 9000, 90], "BUILD", "it: BUILD, 1m, about 40s left (3 earlier runs here)"),
        (100, [100], "", "it: 1m 40s, longer than the 1m 40s of earlier runs here"),
    ],
)
def test_an_estimate_comes_from_earlier_runs_alone(seconds: float, past: list[float], at: str, wanted: str) -> None:
    assert line("it", seconds, past, at) == wanted


def test_only_complete_runs_count(state: Path) -> None:
    for number in range(7):
        with working("it", "diff S"):
            pass
        with pytest.raises(ZeroDivisionError), working("it", "failed S"):
            raise ZeroDivisionError
        with working("it", "resumed S") as shown:
            shown.counts = False
        with working("it"):
            pass
        assert {key: len(runs) for key, runs in durations().items()} == {"diff S": min(number + 1, 5)}
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"diff S": 3}', '{"diff S": ["x"]}', '{"diff S": null}'])
def test_a_broken_history_is_none(broken: str, state: Path) -> None:
    state.parent.mkdir()
    state.write_text(broken)
    assert durations() == {}
    with working("it", "diff S"):
        pass
    assert list(durations()) == ["diff S"]


def test_the_history_is_bounded(state: Path) -> None:
    for number in range(205):
        module._note(f"copy {number}", 1.0)
    assert list(durations()) == [f"copy {number}" for number in range(5, 205)]


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with working("it", "diff S"):
        pass
    assert durations() == {}


PROGRAM = """
import time
from trainium_cdk.cli import working
from trainium_cdk.cli.output import log
working.FIRST = 0.05
with working.working("deleting S", "destroy S", alone={alone}) as shown:
    shown.at("3 of 9 resources")
    log("deleting volume " + "v" * 100)
    time.sleep(1)
"""


def run(state: Path, *, terminal: bool, alone: bool = True, **variables: str) -> str:
    env = {**os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm-256color", "COLUMNS": "70", **variables}
    command = [sys.executable, "-c", PROGRAM.format(alone=alone)]
    if not terminal:
        return completed(command, env=env, check=True, timeout=120).stderr
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=env, stderr=theirs) as program:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # it has ended
                break
        os.close(ours)
        assert program.wait(60) == 0
    return seen.decode()


def test_on_a_terminal_in_a_pipe_and_beside_another_program(tmp_path: Path) -> None:
    (tmp_path / HISTORY).parent.mkdir()
    (tmp_path / HISTORY).write_text(json.dumps({"destroy S": [300]}))
    estimate = r"deleting S: 3 of 9 resources, \d+s, about \dm( \d+s)? left \(\d earlier runs? here\)"

    piped = run(tmp_path, terminal=False)
    assert "\x1b" not in piped
    assert "\r" not in piped
    said, *lines = piped.splitlines()
    assert said == "deleting volume " + "v" * 100
    assert lines
    assert all(re.fullmatch(estimate, one) for one in lines)
    assert len(lines) <= 5, "each pause is twice the last one"
    assert run(tmp_path, terminal=True, TERM="dumb").replace("\r", "").splitlines()[0] == said

    (tmp_path / HISTORY).write_text(json.dumps({"destroy S": [300]}))
    live = run(tmp_path, terminal=True, NO_COLOR="1")
    assert "deleting volume " + "v" * 100 in live, "what is said meanwhile is not broken into lines"
    frames = re.findall(r"[|/\\-] (deleting S: [^\x1b\r\n]*)", live)
    assert len(set(frames)) >= 1
    assert all(len(one) <= 68 for one in frames), "a frame is one line"
    assert frames[-1].startswith("deleting S: 3 of 9 resources, ")
    assert not re.search(r"\x1b\[[\d;]*m", re.sub(r"\x1b\[0?m", "", live)), "NO_COLOR"
    assert "\x1b[2K" in live, "the line disappears"

    beside = run(tmp_path, terminal=True, alone=False)
    assert "\x1b" not in beside
    assert re.match(r"deleting S: 0s, about \dm( \d+s)? left \(2 earlier runs here\)\r\n", beside)
