"""The shell functions over PyTorch's checkpoints, with bash."""

from __future__ import annotations

import subprocess
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

LIBRARY = files("trainium_cdk.jobs.shell").joinpath("checkpoints.sh").read_text()


def write(folder: Path, step: int, whole: bool = True) -> None:
    file = folder / f"ckpt_{step}.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"x" * 2000)
    if not whole:
        file.write_bytes(file.read_bytes()[:1000])


def bash(line: str) -> subprocess.CompletedProcess[str]:
    script = f'set -euo pipefail\nsay() {{ echo "$*"; }}\n{LIBRARY}\n{line}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)


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
