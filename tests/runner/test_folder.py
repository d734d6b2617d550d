"""The jobs' folder on a new file system."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainium_cdk.runner.work import container


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def test_it_is_open_to_all_who_delete_only_their_own(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "trn"
    for _ in range(2):
        container.folder(str(place))
        assert mode(place) == 0o1777


def test_one_that_somebody_has_made_so_keeps_its_mode(tmp_path: Path) -> None:
    place = tmp_path / "trn"
    place.mkdir()
    place.chmod(0o1770)
    container.folder(str(place))
    assert mode(place) == 0o1770


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    there, place = tmp_path / "there", tmp_path / "trn"
    there.mkdir(mode=0o700)
    place.symlink_to(there)
    container.folder(str(place))
    assert mode(there) == 0o700


@pytest.mark.parametrize("parent", [True, False])
def test_what_keeps_it_from_being_made_is_said(tmp_path: Path, parent: bool) -> None:
    file = tmp_path / "file"
    file.touch()
    place = file / "trn" if parent else file
    with pytest.raises(SystemExit, match=f"the jobs' folder {place} cannot be made: (Not a directory|File exists)"):
        container.folder(str(place))
    assert [*tmp_path.iterdir()] == [file]


def test_a_folder_for_files_is_made_where_only_root_may(tmp_path: Path) -> None:
    """The first that is missing on the way: its users make the rest."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    (tmp_path / "link").symlink_to("theirs")
    (tmp_path / "here").mkdir(mode=0o700)
    for name in ("data/set", "theirs/set", "link/set", "here"):
        container.folder(str(tmp_path / "trn"), str(tmp_path / name))
    assert mode(tmp_path / "data") == 0o1777
    assert mode(tmp_path / "here") == 0o700
    assert not list((tmp_path / "data").iterdir())
    assert not list((tmp_path / "theirs").iterdir())
