"""Which checkpoint of a job is the newest complete one, by what its kind says of them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from trainium_cdk.runner.prepare.checkpoints import complete, describe, forget, latest, newest, read_description
from trainium_cdk.runner.spec import Checkpoints

TORCH = Checkpoints("output", pattern="ckpt_*.pt", last="zip", forget="others")
TRAINER = Checkpoints("output", pattern="checkpoint-*", last="trainer_state.json")
TITAN = Checkpoints("output", "checkpoint", pattern="step-*", last=".metadata")
NXD = Checkpoints("output/checkpoints", pattern="*.ckpt", last="done", forget="others")


def torch_file(file: Path, whole: bool = True) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", file.name * 200)
    if not whole:
        file.write_bytes(file.read_bytes()[:1000])


def folder_with(place: Path, last: str, text: str) -> None:
    place.mkdir(parents=True)
    (place / "weights").write_text("x")
    if last:
        (place / last).write_text(text)


def test_the_newest_that_was_written_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (9, 10, 100):
        torch_file(tmp_path / f"ckpt_{step}.pt", whole=step != 100)
    assert newest(TORCH, tmp_path) == tmp_path / "ckpt_10.pt"
    assert "ckpt_100.pt was not written to its end: the one before it is used" in capsys.readouterr().err
    assert newest(TORCH, tmp_path / "none") is None
    (tmp_path / "ckpt_200.pt").write_bytes(b"an old format of PyTorch")
    assert newest(TORCH, tmp_path) == tmp_path / "ckpt_200.pt"
    (tmp_path / "ckpt_300.pt").touch()
    (tmp_path / "ckpt_400.pt").mkdir()
    assert newest(TORCH, tmp_path) == tmp_path / "ckpt_200.pt"


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (TRAINER, ("checkpoint-9", "checkpoint-10", "checkpoint-100")),
        (TITAN, ("step-9", "step-10", "step-100")),
        (NXD, tuple(f"megatron_gpt--step={n}-consumed_samples={n * 1024.0}.ckpt" for n in (800, 1000, 1200))),
    ],
)
def test_a_folder_is_complete_with_its_last_file(made: Checkpoints, names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        folder_with(tmp_path / name, made.last, "" if name == names[-1] else "1")
    folder_with(tmp_path / f"{names[-1].replace('1', '3')}", "", "")
    folder_with(tmp_path / "other", made.last, "1")
    assert newest(made, tmp_path) == tmp_path / names[1]


def test_one_that_is_written_over_an_older_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PyTorch's `dcp.save` does so, and leaves the old `.metadata` until its end."""
    for step in (10, 20):
        folder_with(tmp_path / f"step-{step}", ".metadata", "1")
        for name, at in (("__0_0.distcp", 1000), ("__1_0.distcp", 1001), (".metadata", 1000)):  # clocks of nodes differ
            (tmp_path / f"step-{step}" / name).touch()
            os.utime(tmp_path / f"step-{step}" / name, (at, at))
    assert newest(TITAN, tmp_path) == tmp_path / "step-20"
    os.utime(tmp_path / "step-20/__1_0.distcp", (2000, 2000))
    assert newest(TITAN, tmp_path) == tmp_path / "step-10"
    advice = capsys.readouterr().err.partition("Then run: touch ")[2].splitlines()[0]
    os.utime(advice)
    assert newest(TITAN, tmp_path) == tmp_path / "step-20"


def test_of_a_kind_that_knows_of_none(tmp_path: Path) -> None:
    folder_with(tmp_path / "a", "done", "1")
    assert newest(Checkpoints("checkpoints"), tmp_path) is None


@pytest.mark.parametrize("made", [TORCH, NXD])
def test_a_restart_leaves_one(made: Checkpoints, tmp_path: Path) -> None:
    """Of this folder; results and other files stay. The program itself would take the newest, complete or not."""
    for number in (8, 4, 12):
        for place in (tmp_path, tmp_path / "best"):
            if made is TORCH:
                torch_file(place / f"ckpt_{number}.pt", whole=number != 12)
            else:
                folder_with(place / f"step={number}.ckpt", "done", "" if number == 12 else "1")
    (tmp_path / "results.json").write_text("{}")
    forget(made, tmp_path)
    forget(made, tmp_path / "none")
    left = "ckpt_8.pt" if made is TORCH else "step=8.ckpt"
    assert {file.name for file in tmp_path.iterdir()} == {left, "results.json", "best"}
    assert len([*(tmp_path / "best").iterdir()]) == 3


def test_where_none_is_complete_it_starts_again(tmp_path: Path) -> None:
    folder_with(tmp_path / "step=4.ckpt", "", "")
    forget(NXD, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_nothing_is_forgotten_unless_the_kind_says_so(tmp_path: Path) -> None:
    for step in (1, 2):
        folder_with(tmp_path / f"checkpoint-{step}", "trainer_state.json", "{}")
    forget(TRAINER, tmp_path)
    assert len([*tmp_path.iterdir()]) == 2


def test_what_another_job_must_have_in_common(tmp_path: Path) -> None:
    describe({}, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    describe({"kind": "gpt-6.7b", "workers": "32"}, tmp_path / "output")
    assert read_description(tmp_path / "output") == {"kind": "gpt-6.7b", "workers": "32"}
    assert read_description(tmp_path) == {}
    (tmp_path / "trn-checkpoints").write_bytes(b"model \x1b[31mQwen\xff\nmodel x\n" + b"y" * 50_000)
    found = read_description(tmp_path)
    assert (found["model"], len(str(found)) < 25_000) == ("[31mQwen", True)


def test_checkpoints_of_lightning_are_files_beside_each_other(tmp_path: Path) -> None:
    """`lightning.ckpt` was written by Lightning 2.6.6. Its callback copies the newest one to last.ckpt. Files of other programs may be parts of one."""
    own, content = Checkpoints("checkpoints"), Path(__file__).with_name("lightning.ckpt").read_bytes()
    names = ("epoch=0-step=8.ckpt", "epoch=1-step=16.ckpt", "last.ckpt", "epoch=2-step=24.ckpt")
    for at, name in enumerate(names):
        (tmp_path / name).write_bytes(content if name != names[-1] else content[:-200])
        os.utime(tmp_path / name, (at, at))
    assert [one.name for one in complete(own, tmp_path)] == ["epoch=1-step=16.ckpt", "epoch=0-step=8.ckpt"]
    assert latest(own, tmp_path) == tmp_path / "epoch=1-step=16.ckpt"
    for rank in range(2):
        torch_file(tmp_path / f"ranks/rank-{rank}.ckpt")
    assert not list(complete(own, tmp_path / "ranks"))
