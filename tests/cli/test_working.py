"""What a command shows that takes a while: on a terminal, in a pipe, and beside another program."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

from tests.support import completed

PROGRAM = """
import time
from trainium_cdk.client.cli import progress
from trainium_cdk.client.cli.output import log
progress.FIRST = 0.05
with progress.working("deleting S", alone={alone}) as shown:
    shown.at("3 of 9 resources")
    log("deleting volume " + "v" * 100)
    time.sleep(1)
"""


def run(*, terminal: bool, alone: bool = True, **variables: str) -> str:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "70", **variables}
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


def test_on_a_terminal_in_a_pipe_and_beside_another_program() -> None:
    piped = run(terminal=False)
    assert "\x1b" not in piped
    assert "\r" not in piped
    said, *lines = piped.splitlines()
    assert said == "deleting volume " + "v" * 100
    assert lines
    assert all(re.fullmatch(r"deleting S: 3 of 9 resources, \d+s", one) for one in lines)
    assert len(lines) <= 5, "each pause is twice the last one"
    assert run(terminal=True, TERM="dumb").replace("\r", "").splitlines()[0] == said

    live = run(terminal=True, NO_COLOR="1")
    assert "deleting volume " + "v" * 100 in live, "what is said meanwhile is not broken into lines"
    frames = re.findall(r"[|/\\-] (deleting S: [^\x1b\r\n]*)", live)
    assert len(set(frames)) >= 1
    assert all(len(one) <= 68 for one in frames), "a frame is one line"
    assert frames[-1].startswith("deleting S: 3 of 9 resources, ")
    assert not re.search(r"\x1b\[[\d;]*m", re.sub(r"\x1b\[0?m", "", live)), "NO_COLOR"
    assert "\x1b[2K" in live, "the line disappears"

    beside = run(terminal=True, alone=False)
    assert "\x1b" not in beside
    assert "deleting S" not in beside
