"""The shell functions over PyTorch's checkpoints, with bash."""

from __future__ import annotations

import os
import subprocess
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support import completed

LIBRARY = files("trainium_cdk.jobs.shell").joinpath("checkpoints.sh").read_text()


def write(folder: Path, step: int, whole: bool = True) -> None:
    file = folder / f"ckpt_{step}.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"x" * 2000)
    if not whole:
        file.write_bytes(file.read_bytes()[:1000])


def bash(line: str) -> subprocess.CompletedProcess[str]:
    script = f'set -euo pipefail\nsay() {{ echo "$*"; }}\n{LIBRARY}\n{line}'
    return completed(["bash", "-c", script], check=True)


def test_the_newest_that_was_written_to_its_end(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path, step, whole=step != 100)
    done = bash(f'newest_checkpoint "{tmp_path}"')
    assert done.stdout == f"{tmp_path}/ckpt_10.pt\n"
    assert "ckpt_100.pt was not written to its end: the one before it is used" in done.stderr
    assert bash(f'newest_checkpoint "{tmp_path}/none"').stdout == ""


def test_the_newest_of_a_trainer_that_has_its_state(tmp_path: Path) -> None:
    for step, state in ((9, "{}"), (100, "{}"), (200, "")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}/trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-300").mkdir()
    assert bash(f'newest_trainer_checkpoint "{tmp_path}"').stdout == f"{tmp_path}/checkpoint-100\n"
    assert bash(f'newest_trainer_checkpoint "{tmp_path}/none"').stdout == ""


@pytest.mark.parametrize(("rank", "left"), [("0", ["ckpt_10.pt"]), ("1", ["ckpt_10.pt", "ckpt_100.pt", "ckpt_9.pt"])])
def test_a_restart_leaves_one(rank: str, left: list[str], tmp_path: Path) -> None:
    """Of this folder, and only node 0 deletes; results and other files stay."""
    (tmp_path / "best").mkdir()
    for folder, steps in ((tmp_path, (9, 10, 100)), (tmp_path / "best", (3,))):
        for step in steps:
            write(folder, step)
    (tmp_path / "results.json").write_text("{}")
    bash(f'NODE_RANK={rank}; delete_other_checkpoints "{tmp_path}/ckpt_10.pt"; delete_other_checkpoints ""')
    assert sorted(file.name for file in tmp_path.glob("*.pt")) == left
    assert (tmp_path / "best/ckpt_3.pt").exists()
    assert (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("rank", "left"), [("0", {"step=8.ckpt"}), ("1", {"step=4.ckpt", "step=8.ckpt", "step=12.ckpt"})]
)
def test_a_restart_of_nxd_training_finds_one_that_is_complete(rank: str, left: set[str], tmp_path: Path) -> None:
    """The program itself would take the newest, complete or not (conformance/test_nemo.py)."""
    for number, (step, done) in enumerate(((8, True), (4, True), (12, False))):
        (tmp_path / f"step={step}.ckpt/model").mkdir(parents=True)
        if done:
            (tmp_path / f"step={step}.ckpt/done").touch()
            os.utime(tmp_path / f"step={step}.ckpt/done", (100 - number, 100 - number))
    (tmp_path / "other").mkdir()
    bash(f'NODE_RANK={rank}; keep_newest_checkpoint "{tmp_path}"; keep_newest_checkpoint "{tmp_path}/none"')
    assert {file.name for file in tmp_path.iterdir()} == left | {"other"}


def test_where_none_is_complete_it_starts_again(tmp_path: Path) -> None:
    (tmp_path / "step=4.ckpt").mkdir()
    bash(f'keep_newest_checkpoint "{tmp_path}"')
    assert not [*tmp_path.iterdir()]
