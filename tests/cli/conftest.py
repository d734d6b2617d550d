"""A terminal for programs."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def terminal() -> Iterator[Callable[..., tuple[int, str]]]:
    """Runs a Python program in a terminal of its own, and presses a key whenever a text has appeared since the key before."""
    running: list[subprocess.Popen[bytes]] = []

    def run_in(*words: str, keys: list[tuple[str, bytes]], program: str) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        command = ["setsid", "--ctty", "--wait", sys.executable, "-c", program, *words]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True)
        running.append(process)
        os.close(theirs)
        seen, begin, until, waiting = "", 0, time.monotonic() + 300, list(keys)
        try:
            while time.monotonic() < until:
                ready, _, _ = select.select([ours], [], [], 1)
                try:
                    seen += os.read(ours, 65536).decode(errors="replace") if ready else ""
                except OSError:  # the program has ended
                    break
                if waiting and waiting[0][0] in seen[begin:]:
                    begin = len(seen)
                    os.write(ours, waiting.pop(0)[1])
        finally:
            os.close(ours)
        assert not waiting, seen
        return process.wait(60), seen

    yield run_in
    for program in running:
        program.kill()
        program.wait()
