"""Files that the command writes: completely or not at all, with minimal permissions."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from trainium_cdk.client.cli.output import write_file
from trainium_cdk.errors import TrnError


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("old")
    file.chmod(0o644)
    with pytest.raises(UnicodeEncodeError):
        write_file(file, "new \ud800", 0o600)
    assert file.read_text() == "old"
    write_file(file, "new", 0o600)
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    """A reader that opened the old file reads the old file to its end."""
    file = tmp_path / "config"
    file.write_text("old")
    with file.open() as opened:
        write_file(file, "new", 0o600)
        assert opened.read() == "old"


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    write_file(tmp_path / "link", "new", 0o644)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_file(tmp_path / "pipe", "new", 0o600)
    reader.join(600)
    assert got == ["new"]


@pytest.mark.parametrize("name", ["none/config", "file/config", "."])
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrnError, match=r"cannot write .*: .*\. Give another file"):
        write_file(tmp_path / name, "x", 0o600)
