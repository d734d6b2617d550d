"""The readiness probe of a container that trains: which findings let it fail, and what a program can put in its place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainium_cdk.runner.readers import Finding
from trainium_cdk.runner.work import container
from trainium_cdk.runner.work.health import BUDGET, HANG, NAN, RESTARTED, SILENT, START, STRAGGLER

ROOM = Path(__file__).resolve().parents[2] / "constructs/trainium_cdk"
_RUN = "import sys; from pathlib import Path; from runner.work import container; container.WRONG = Path(sys.argv[1]); container.ready()"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(container, "WRONG", tmp_path / "wrong")
    return tmp_path / "wrong"


def probe(file: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", _RUN, str(file)], env={"PYTHONPATH": str(ROOM)}, capture_output=True, text=True, timeout=20, check=False)  # fmt: skip
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((), ""),
        ((HANG,), "hangs since 2026-11-27 09:00 UTC: why\n"),
        ((NAN,), "has lost its loss since 2026-11-27 09:00 UTC: why\n"),
        ((BUDGET,), "its budget at 2026-11-27 09:00 UTC: why\n"),
        ((STRAGGLER, SILENT, START, RESTARTED), ""),
        ((RESTARTED, NAN), "has lost its loss since 2026-11-27 09:00 UTC: why\n"),
    ],
)
def test_it_fails_while_the_training_does_not_go_on(file: Path, kinds: tuple[str, ...], said: str) -> None:
    container.tell([Finding(kind, 1_795_770_000.0, evidence="why") for kind in kinds])
    assert probe(file) == (bool(said), said)
    container.tell([])
    assert probe(file) == (0, "")


def test_what_a_program_puts_in_its_place_tells_of_this_pod_alone(file: Path) -> None:
    file.write_bytes(b"\xff\x00" * 5000)
    code, said = probe(file)
    assert (code, len(said)) == (1, 1001)
    file.unlink()
    (file.parent / "other").write_text("text")
    file.symlink_to("other")
    assert probe(file) == (0, ""), "no link is followed"
    container.tell([Finding(HANG, 1_795_770_000.0)])
    assert probe(file)[0] == 1
    assert (file.parent / "other").read_text() == "text"
    file.unlink()
    os.mkfifo(file)
    assert probe(file) == (0, "")
    file.unlink()
    file.mkdir()
    container.tell([Finding(HANG, 1_795_770_000.0)])
    container.tell([])
    assert probe(file) == (0, "")
