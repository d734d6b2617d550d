"""The code of an array's member: a copy of its own, in which its files are its own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainium_cdk.runner import layout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    code = tmp_path / "j-1/code"
    (code / "pkg/deep").mkdir(parents=True)
    (code / "many").mkdir()
    for name in map(str, range(layout.LINKED_FROM_ENTRIES + 1)):
        (code / "many" / name).touch()
    (code / "train.sh").write_text("true")
    (code / "train.sh").chmod(0o755)
    (code / "pkg/deep/a.py").write_text("1")
    (code / "large.bin").write_bytes(b"x" * (layout.LINKED_FROM_BYTES + 1))
    (code / "link.sh").symlink_to("train.sh")
    (code / "nowhere").symlink_to("missing")
    return tmp_path / "j-1"


def test_small_files_are_its_own_and_large_ones_are_shared(root: Path) -> None:
    own = layout.lay_out_member(root, "3") / "code"
    (own / "pkg/deep/a.py").write_text("2")
    (own / "pkg/deep/new.json").write_text("{}")
    (own / "link.sh").write_text("false")
    assert (root / "code/pkg/deep/a.py").read_text() == "1"
    assert (root / "code/train.sh").read_text() == "true"
    assert not (root / "code/pkg/deep/new.json").exists()
    assert os.access(own / "train.sh", os.X_OK)
    assert str((own / "large.bin").readlink()) == "../../code/large.bin"
    assert (own / "large.bin").stat().st_size == layout.LINKED_FROM_BYTES + 1
    assert str((own / "many").readlink()) == "../../code/many"
    assert (own / "many/7").exists()
    assert str((own / "nowhere").readlink()) == "missing"


def test_it_is_made_once_by_several_nodes(root: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: layout.lay_out_member(root, "0"), range(4)))
    (root / "0/code/result.json").write_text("{}")
    layout.lay_out_member(root, "0")  # it starts again
    assert (root / "0/code/result.json").exists()
    assert not list((root / "0").glob(".code*"))


def test_a_disk_that_is_full_leaves_no_half_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copy2", full)
        with pytest.raises(OSError, match="No space left"):
            layout.lay_out_member(root, "0")
    assert not (root / "0/code").exists()
    assert (layout.lay_out_member(root, "0") / "code/train.sh").exists()
