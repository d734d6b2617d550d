"""Archives from anywhere: nothing is written outside the folder they are unpacked into, on any Python that nodes have."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.prepare.fetching import SMALL, Damaged, unpack

SYMLINK, HARDLINK = tarfile.SYMTYPE, tarfile.LNKTYPE


def packed(*members: tuple[str, Any], mode: str = "w") -> bytes:
    """A tar archive of (name, content of a file, type of anything else, or (type, target))."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, what in members:
            entry = tarfile.TarInfo(name)
            if isinstance(what, str):
                entry.size = len(what)
                tar.addfile(entry, io.BytesIO(what.encode()))
                continue
            entry.type, entry.linkname = what if isinstance(what, tuple) else (what, "")
            tar.addfile(entry)
    return out.getvalue()


@pytest.fixture(params=["data filter", "no data filter"])
def any_python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pythons before 3.9.17, 3.10.12 and 3.11.4 have no data filter."""
    if request.param == "no data filter":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


def test_only_what_the_owner_may_run_is_executable(tmp_path: Path) -> None:
    out, modes = io.BytesIO(), {"a": 0o700, "b": 0o677, "c": 0o4711, "d": 0}
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, mode in modes.items():
            entry = tarfile.TarInfo(name)
            entry.mode = mode
            tar.addfile(entry)
    mask = os.umask(0)
    try:
        unpack(io.BytesIO(out.getvalue()), tmp_path / "to", 1000)
    finally:
        os.umask(mask)
    found = {name: (tmp_path / "to" / name).stat().st_mode & 0o7777 for name in modes}
    assert found == {"a": 0o755, "b": 0o644, "c": 0o755, "d": 0o644}


GOOD = (
    (".", tarfile.DIRTYPE),
    ("./set/", tarfile.DIRTYPE),
    ("set/a", "A"),
    ("set/sub/b", "B"),
    ("set/sub/up", (SYMLINK, "../a")),
    ("set/sub/down", (SYMLINK, "./b")),
    ("top", (SYMLINK, "set")),
    ("set/same", (HARDLINK, "set/a")),
    ("set/a", "AA"),
)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.usefixtures("any_python")
def test_an_archive_is_unpacked(tmp_path: Path, mode: str) -> None:
    assert unpack(io.BytesIO(packed(*GOOD, mode=mode)), tmp_path / "x", 1000) == (8, 4)
    assert (tmp_path / "x/top/sub/up").read_text() == "AA"
    assert (tmp_path / "x/set/same").read_text() == "A"
    assert str((tmp_path / "x/set/sub/up").readlink()) == "../a"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("/tmp/x", "a")], "'/tmp/x' is outside the folder"),
        ([("../x", "a")], "'../x' is outside the folder"),
        ([("a/../../x", "a")], "'a/../../x' is outside the folder"),
        ([("a", (SYMLINK, "/etc"))], "'a' is a link to '/etc', which is outside the folder"),
        ([("a", (SYMLINK, ".."))], "'a' is a link to '..', which is outside the folder"),
        ([("a/b", (SYMLINK, "../../victim"))], "'a/b' is a link to '../../victim', which is outside the folder"),
        # up again, through a link that goes less deep than its name
        (
            [("a/b/up", (SYMLINK, "../..")), ("out", (SYMLINK, "a/b/up/../victim"))],
            "'out' is a link to 'a/b/up/../victim', which is outside the folder",
        ),
        ([("a", (SYMLINK, "b")), ("a/x", "x")], "'a' is a folder and a file or a link"),
        ([("b/x", "x"), ("a", (SYMLINK, "b")), ("a/x", "y")], "'a' is a folder and a file or a link"),
        ([("a", (HARDLINK, "/etc/passwd"))], "'a' is a link to '/etc/passwd', which is not a file of the archive"),
        ([("a", (HARDLINK, "../victim/node.sh"))], "'a' is a link to '../victim/node.sh', which is not a file of"),
        ([("l", (SYMLINK, "b")), ("a", (HARDLINK, "l"))], "'a' is a link to 'l', which is not a file of the archive"),
        ([("a", tarfile.CHRTYPE)], "'a' is a device or a pipe"),
        ([("a", tarfile.FIFOTYPE)], "'a' is a device or a pipe"),
        ([("a/b", "x"), ("a", "y")], "'a' is a folder and a file"),
        ([("a", "y"), ("a/b", "x")], "'a' is a folder and a file or a link"),
    ],
)
@pytest.mark.usefixtures("any_python")
def test_a_hostile_archive_is_refused(tmp_path: Path, members: Any, message: str) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/node.sh").write_text("theirs")
    with pytest.raises(Refused) as raised:
        unpack(io.BytesIO(packed(("good", "good"), *members)), tmp_path / "x", 1000)
    assert str(raised.value).startswith(message)
    outside = [
        str(f.relative_to(tmp_path)) for f in sorted(tmp_path.rglob("*")) if tmp_path / "x" not in (f, *f.parents)
    ]
    assert outside == ["victim", "victim/node.sh"]
    assert (tmp_path / "victim/node.sh").read_text() == "theirs"


def test_a_small_archive_that_becomes_a_large_one(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("zeros")
    entry.size = 3 * SMALL
    with pytest.raises(Refused, match=r"it is more than 1,073,741,824 bytes unpacked, and "):
        unpack(io.BytesIO(gzip.compress(entry.tobuf() + bytes(10_000))), tmp_path / "x", 1000)


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"no archive",
        packed(("a", "x" * 5000), ("b", "y" * 5000))[:7000],
        packed(("a", "x" * 5000), mode="w:gz")[:-30],
        packed(("a", "x" * 100))[:1024] + b"garbage!" * 128,
    ],
    ids=["empty", "no archive", "cut", "cut gzip", "garbage"],  # gzip's header has the time: workers would not agree
)
@pytest.mark.usefixtures("any_python")
def test_a_damaged_archive(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(Damaged):
        unpack(io.BytesIO(archive), tmp_path / "x", 1000)


NAMES = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join)
MEMBERS = st.tuples(NAMES, st.one_of(st.just("x"), st.tuples(st.sampled_from([SYMLINK, HARDLINK]), NAMES)))


@given(st.lists(MEMBERS, max_size=8))
def test_nothing_ever_leaves_the_folder(members: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "a", "folder")
        folder.parent.mkdir()
        for name in ("b", "c", "a/b", "a/c"):
            Path(place, name).write_text("theirs")
        with suppress(Refused):
            unpack(io.BytesIO(packed(*members)), folder, 10_000)
        assert all(Path(place, name).read_text() == "theirs" for name in ("b", "c", "a/b", "a/c"))
        assert sorted(f.name for f in Path(place).iterdir()) == ["a", "b", "c"]
        for entry in folder.rglob("*"):
            if entry.is_symlink():
                assert os.path.realpath(entry).startswith(os.path.realpath(folder)), entry
