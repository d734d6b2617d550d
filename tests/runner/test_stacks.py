"""The stacks of a program that hangs. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import until
from trainium_cdk.runner.work.process import Output
from trainium_cdk.runner.work.pulse import descendants, is_compiling, write_stacks

HANGS = """
import subprocess, sys, time
def waits_for_ever():
    time.sleep(600)
worker = len(sys.argv) > 1
if not worker:
    subprocess.Popen([sys.executable, __file__, "worker"], start_new_session=True)
print("begins", flush=True)
waits_for_ever()
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for one in made:
        for pid in descendants([one.pid]):
            subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
        one.wait()


def start(started: list[subprocess.Popen[bytes]], place: Path, **env: str) -> int:
    """A program, whose worker has a session of its own, as torchrun's have."""
    (place / "hangs.py").write_text(HANGS)
    with (place / "log").open("ab") as log:
        words = [sys.executable, str(place / "hangs.py")]
        started.append(subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **env}))
    assert until(lambda: (place / "log").read_text().count("begins") == 2, 30)
    return started[-1].pid


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_each_process_writes_its_own(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    first = start(started, tmp_path, PYTHONFAULTHANDLER="1")
    every = descendants([first])
    assert (len(every), every[-1]) == (2, first)
    write_stacks([first], {"PATH": "/usr/bin:/bin"}, Output(tmp_path / "log"))
    assert until(lambda: (tmp_path / "log").read_text().count("in waits_for_ever") == 2, 30)
    assert until(lambda: not any(map(alive, every)), 30)
    assert not list(tmp_path.glob("core*"))


def test_a_program_that_does_not_know_the_signal_gets_none(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    first = start(started, tmp_path)
    write_stacks([first], {"PATH": "/usr/bin:/bin"}, Output(tmp_path / "log"))
    time.sleep(0.5)
    assert all(map(alive, descendants([first])))
    assert len(descendants([first])) == 2
    assert f"trn: stack of process {first}: {sys.executable}" in (tmp_path / "log").read_text()


def test_a_tool_of_the_job_looks_at_them(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    """Where it may: else the process does it itself."""
    tool = tmp_path / "bin/py-spy"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "Process $3: seen by the tool"\n')
    tool.chmod(0o755)
    first = start(started, tmp_path, PYTHONFAULTHANDLER="1")
    every = descendants([first])
    write_stacks([first], {"PATH": f"{tool.parent}:/usr/bin:/bin"}, Output(tmp_path / "log"))
    log = (tmp_path / "log").read_text()
    assert all(f"Process {pid}: seen by the tool" in log for pid in every)
    assert all(map(alive, every))
    tool.write_text("#!/bin/sh\necho no permission >&2; exit 1\n")
    write_stacks([first], {"PATH": f"{tool.parent}:/usr/bin:/bin"}, Output(tmp_path / "log"))
    assert until(lambda: not any(map(alive, every)), 30)


def test_a_compiler_that_runs(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    compiler = tmp_path / "neuronx-cc"
    compiler.write_text("#!/bin/sh\nsleep 600\n")
    compiler.chmod(0o755)
    first = start(started, tmp_path)
    assert not is_compiling(descendants([first]))
    started.append(subprocess.Popen([str(compiler), "compile"]))
    assert until(lambda: is_compiling(descendants([started[-1].pid])), 10)


def test_an_argument_that_names_a_compiler_is_none(started: list[subprocess.Popen[bytes]]) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(600)", "--compiler", "neuronx-cc", "--flags=neuronx-cc -O1"]
    started.append(subprocess.Popen(words))
    assert until(lambda: b"neuronx-cc" in Path(f"/proc/{started[-1].pid}/cmdline").read_bytes(), 10)
    assert not is_compiling([started[-1].pid])
