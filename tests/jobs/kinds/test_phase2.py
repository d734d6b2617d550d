"""What starts BERT's phase 2, which is sent with the job: on a node, with any Python."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import completed
from trainium_cdk.client.jobs.sent import phase2

FIRST = "/efs/ckpt_7032.pt"


def started(stage: str, first: str | Path, *newest: str | Path) -> tuple[int, list[str], str]:
    """Exit code, what the program got, and what was said."""
    program = [sys.executable, "-c", "import sys; print(*sys.argv[1:], sep='\\n')", "--", "a b", "$HOME"]
    words = [sys.executable, phase2.__file__, *program, "--", stage, str(first), *map(str, newest)]
    done = completed(words, env={"PATH": os.defpath})
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("stage", "newest", "begins", "ended"),
    [
        ("train", "", "FIRST", 7032),
        ("precompile", "", "FIRST", 7032),
        ("train", "/efs/jobs/a/output/ckpt_9.pt", "/efs/jobs/a/output/ckpt_9.pt", 7032),
        # graphs are compiled in the first steps
        ("precompile", "/efs/jobs/a/output/ckpt_9.pt", "/efs/jobs/a/output/ckpt_9.pt", 9),
    ],
)
def test_a_checkpoint_of_phase_1(stage: str, newest: str, begins: str, ended: int, tmp_path: Path) -> None:
    first = tmp_path / "ckpt_7032.pt"
    first.write_text("weights")
    code, got, said = started(stage, first, *filter(None, [newest]))
    begins = begins.replace("FIRST", str(first))
    resume = ["--resume_ckpt", "--resume_ckpt_path", begins, "--phase1_end_step", str(ended)]
    assert (code, got, said) == (0, ["--", "a b", "$HOME", *resume], "")


def test_the_newest_complete_one_of_a_job(tmp_path: Path) -> None:
    for step in (200, 1000):
        with zipfile.ZipFile(tmp_path / f"ckpt_{step}.pt", "w") as archive:
            archive.writestr("weights", "1")
    (tmp_path / "ckpt_3000.pt").write_bytes((tmp_path / "ckpt_1000.pt").read_bytes()[:20])
    (tmp_path / "notes.pt").touch()
    code, got, said = started("train", tmp_path)
    assert code == 0
    assert got[-3:] == [f"{tmp_path}/ckpt_1000.pt", "--phase1_end_step", "1000"]
    assert said == f"trn: {tmp_path}/ckpt_3000.pt was not written to its end: the one before it is used\n"


@pytest.mark.parametrize("first", ["ckpt_5.pt", ""])
def test_nothing_to_start_from_ends_the_job(first: str, tmp_path: Path) -> None:
    code, got, said = started("train", tmp_path / first)
    assert (code, got) == (phase2.CANNOT_START, [])
    assert said == f"trn: there is no checkpoint of phase 1: {tmp_path / first}\n"


def test_going_on_from_phase_2_needs_its_number_alone(tmp_path: Path) -> None:
    """As with `resume_from`: the file of phase 1 may be gone."""
    code, got, _ = started("train", FIRST, tmp_path / "ckpt_9.pt")
    assert code == 0
    assert got[-3:] == [f"{tmp_path}/ckpt_9.pt", "--phase1_end_step", "7032"]
    assert started("train", tmp_path, tmp_path / "ckpt_9.pt")[0] == phase2.CANNOT_START


@pytest.mark.parametrize(
    ("content", "whole"), [(b"", False), (b"PK\x03\x04", False), (b"weights of an older PyTorch", True)]
)
def test_what_is_no_archive_is_whole_if_it_has_content(content: bytes, whole: bool, tmp_path: Path) -> None:
    (tmp_path / "ckpt_1.pt").write_bytes(content)
    assert phase2.is_whole(tmp_path / "ckpt_1.pt") is whole
