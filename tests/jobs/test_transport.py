"""Running on this machine: a script's output, its end, and the error when it does not end."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from trainium_cdk.jobs import LocalTransport, TransportError


def test_a_script_runs_and_returns_its_output() -> None:
    done = LocalTransport().run("echo out; printf '\\xff'; echo err >&2; read -r x; echo \"<$x>\"; exit 3")
    assert (done.stdout, done.stderr, done.code) == ("out\n\N{REPLACEMENT CHARACTER}<>\n", "err\n", 3)


def test_a_script_may_be_longer_than_a_command_line() -> None:
    done = LocalTransport().run("x='" + "a" * 3_000_000 + "'; echo ${#x}")
    assert (done.stdout, done.code) == ("3000000\n", 0)


def test_a_script_that_does_not_end_is_stopped() -> None:
    with pytest.raises(TransportError, match=r"did not end within 1 s. Is Slurm's controller up"):
        LocalTransport().run("sleep 60; echo", timeout=1)


def test_a_machine_without_bash() -> None:
    with pytest.raises(TransportError, match="cannot run bash on this machine"):
        LocalTransport(env={"PATH": "/nowhere"}).run("true")


def test_no_file_can_be_left_by_a_killed_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert LocalTransport().run(f"ls -A {tmp_path}; echo looked").stdout == "looked\n"
