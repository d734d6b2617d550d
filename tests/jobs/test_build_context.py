"""What a folder is sent as: the files that `docker build` would see, no secrets, and nothing from outside the folder."""

from __future__ import annotations

import io
import os
import re
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from trainium_cdk.client.jobs import images
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.errors import TrnError

EXAMPLE = ROOT / "examples/bert-large"


def names(source: images.PackedFolder) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(source.content)).namelist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "Dockerfile",
        "a.py",
        "sub/b.py",
        "sub/data/c.bin",
        "data/d.bin",
        ".git/HEAD",
        "notes/x.md",
        "notes/y.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("ignore", "packed"),
    [
        ("", {"a.py", "sub/b.py", "sub/data/c.bin", "data/d.bin", "notes/x.md", "notes/y.md"}),
        ("data\n# sub\n", {"a.py", "sub/b.py", "sub/data/c.bin", "notes/x.md", "notes/y.md"}),
        ("**/data", {"a.py", "sub/b.py", "notes/x.md", "notes/y.md"}),
        ("*\n!sub", {"sub/b.py", "sub/data/c.bin"}),
        ("notes/*.md\n!notes/y.md\n/data/", {"a.py", "sub/b.py", "sub/data/c.bin", "notes/y.md"}),
        ("Dockerfile\n*.py", {"sub/b.py", "sub/data/c.bin", "data/d.bin", "notes/x.md", "notes/y.md"}),
    ],
)
def test_the_context_contains_what_docker_would_send(folder: Path, ignore: str, packed: set[str]) -> None:
    (folder / ".dockerignore").write_text(ignore)
    assert set(names(images.pack(folder))) == packed | {"Dockerfile", ".dockerignore"}


def test_the_same_files_are_the_same_source(folder: Path) -> None:
    one = images.pack(folder)
    os.utime(folder / "a.py", (1, 1))
    assert images.pack(folder) == one
    (folder / "a.py").chmod(0o755)
    assert images.pack(folder).digest != one.digest
    assert re.fullmatch(r"images/[0-9a-f]{64}\.zip", one.key)
    assert re.fullmatch(r"src-[0-9a-f]{16}", one.tag())


def test_invalid_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrnError, match=r"no-such is not a folder"):
        images.pack(tmp_path / "no-such")
    with pytest.raises(TrnError, match=r"there is no Dockerfile in .*--file"):
        images.pack(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrnError, match=rf"there is no Dockerfile in {tmp_path}\. Name another folder"):
        images.pack(Path())  # "in .." would be another folder


def test_the_example_uses_the_catalogues_container() -> None:
    release = Catalog.load().release(Catalog.load().default_release)
    assert f"ARG RELEASE={release.container}\n" in (EXAMPLE / "Dockerfile").read_text()
    assert sorted(names(images.pack(EXAMPLE))) == [".dockerignore", "Dockerfile", "requirements.txt"]


def git(*arguments: str | Path) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def cloned(tmp_path: Path) -> Path:
    """A clone of a hostile repository, whose author wants the files of its user, next to that user's credentials."""
    theirs, clone = tmp_path / "theirs", tmp_path / "clone"
    for name, text in {
        "Dockerfile": "FROM scratch",
        "src/a.py": "a",
        "src/.aws/credentials": "mine",
        ".env.production": "k",
    }.items():
        (theirs / name).parent.mkdir(parents=True, exist_ok=True)
        (theirs / name).write_text(text)
    (theirs / "src/latest").symlink_to("../src/a.py")
    (theirs / "code").symlink_to("src")
    (theirs / "later").symlink_to("not/there/yet")
    git("init", "-q", theirs)
    git("-C", theirs, "add", "-A")
    git("-C", theirs, "commit", "-q", "-m", "x")
    git("clone", "-q", theirs, clone)
    (tmp_path / "home/.aws").mkdir(parents=True)
    (tmp_path / "home/.aws/credentials").write_text("aws_secret_access_key = AKIASECRET")
    return clone


def test_links_are_sent_as_links_and_secrets_are_not_sent(cloned: Path, tmp_path: Path) -> None:
    source = images.pack(cloned)
    archive = tmp_path / "source.zip"
    archive.write_bytes(source.content)
    subprocess.run(["unzip", "-q", archive, "-d", tmp_path / "built"], check=True, capture_output=True)
    there = {
        str(f.relative_to(tmp_path / "built"))
        for f in (tmp_path / "built").rglob("*")
        if not f.is_dir() or f.is_symlink()
    }
    assert there == {"Dockerfile", "src/a.py", "src/latest", "code", "later"}
    links = {name: str((tmp_path / "built" / name).readlink()) for name in ("src/latest", "code", "later")}
    assert links == {"src/latest": "../src/a.py", "code": "src", "later": "not/there/yet"}
    assert (source.files, source.size) == (5, 12 + 1 + 11 + 3 + 13)
    assert [one.what for one in source.left_out] == [".env.production", ".git", "src/.aws"]
    assert str(source.left_out[2]) == "src/.aws (1 file, 4 bytes)"


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("notes.txt", "../home/.aws/credentials"),
        ("notes.txt", "/proc/self/environ"),
        ("deep/notes.txt", "../../home/.aws/credentials"),
        ("folder", "../home"),
        ("folder", ".."),
        ("again", "../clone/src"),
        ("absolute", "{clone}/src/a.py"),
        ("through", "src/up/.aws/credentials"),
        ("Dockerfile", "../home/.aws/credentials"),
        (".dockerignore", "../home/.aws/credentials"),
    ],
)
def test_links_that_leave_the_folder_are_refused(cloned: Path, link: str, target: str) -> None:
    (cloned / link).parent.mkdir(exist_ok=True)
    (cloned / link).unlink(missing_ok=True)
    (cloned / link).symlink_to(target.format(clone=cloned))
    if link == "through":
        (cloned / "src/up").symlink_to("../../home")
    with pytest.raises(TrnError, match=r"which is outside|is outside") as refused:
        images.pack(cloned)
    assert "SECRET" not in str(refused.value)
    if link not in ("Dockerfile", ".dockerignore", "through"):
        (cloned / ".dockerignore").write_text(link)
        assert link not in names(images.pack(cloned))


def test_a_dockerfile_outside_the_folder(cloned: Path) -> None:
    (cloned.parent / "Dockerfile").write_text("FROM scratch")
    with pytest.raises(TrnError, match=r"^\.\./Dockerfile is outside .*clone"):
        images.pack(cloned, "../Dockerfile")


@pytest.mark.parametrize(
    ("ignore", "sent"),
    [
        ("", set()),
        ("*\n!config", set()),
        ("!config/.env.example", {"config/.env.example"}),
        ("*\n!**/.env.example", {"config/.env.example"}),
        ("!.env", {".env"}),
        ("!.git", {".git/HEAD"}),
    ],
)
def test_files_that_often_hold_secrets_are_sent_only_if_named(folder: Path, ignore: str, sent: set[str]) -> None:
    for name in (".env", "config/.env", "config/.env.example", "home/.ssh/id_rsa", ".netrc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".dockerignore").write_text(ignore)
    hidden = {n for n in names(images.pack(folder)) if any(part.startswith(".") for part in n.split("/"))}
    assert hidden == sent | {".dockerignore"}


def test_other_files_than_regular_ones_are_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    [git_folder, pipe] = images.pack(folder).left_out
    assert (git_folder.what, pipe.what) == (".git", "pipe, which is not a regular file")


def test_a_folder_that_is_too_large_is_refused_before_it_is_read(folder: Path) -> None:
    for name in ("data/train.bin", "data/test.bin", ".git/pack"):
        (folder / name).touch()
        os.truncate(folder / name, 3 * images.MAX_BYTES // 4)
    with pytest.raises(TrnError, match=r"more than 2,000,000,000 bytes; most are in data \(3,000,000,010 bytes\), "):
        images.pack(folder)
    (folder / ".dockerignore").write_text("data")
    source = images.pack(folder)
    assert source.size < 100
    assert [one.size for one in source.left_out] == [1_500_000_009, 3_000_000_010]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (".dockerignore", b"a\n\\\n", r"\.dockerignore, line 2: .* is not a pattern. Correct it, or remove the line"),
        (".dockerignore", b"caf\xe9\n", r"\.dockerignore is not UTF-8 text \(its byte 3\). Save it as UTF-8"),
        (b"caf\xe9.py", b"x", r"the file name b'caf\\xe9\.py' is not UTF-8. Rename it, or name it in \.dockerignore"),
    ],
)
def test_files_that_cannot_be_sent(folder: Path, name: str | bytes, content: bytes, message: str) -> None:
    (folder / os.fsdecode(name)).write_bytes(content)
    with pytest.raises(TrnError, match=message):
        images.pack(folder)


def test_modes_are_kept(folder: Path) -> None:
    (folder / "a.py").chmod(0o755)
    entries = {e.filename: e for e in zipfile.ZipFile(io.BytesIO(images.pack(folder).content)).infolist()}
    assert stat.S_IMODE(entries["a.py"].external_attr >> 16) == 0o755
    assert stat.S_IMODE(entries["sub/b.py"].external_attr >> 16) == 0o644
