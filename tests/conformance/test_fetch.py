"""Sources for `make conformance`: fetched at their commit, or the reason why not. The server is a folder of this machine."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from conformance import upstream
from tests.support import ROOT, completed

NAME = "owner/name"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    return completed(command, check=True).stdout.strip()


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three commits of a served repository; nothing is fetched yet."""
    folder = tmp_path / "served" / NAME
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    made = []
    for text in ("first", "second", "third"):
        (folder / "file.txt").write_text(text)
        git(folder, "add", "file.txt")
        git(folder, "commit", "--quiet", "-m", text)
        made.append(git(folder, "rev-parse", "HEAD"))
    monkeypatch.delenv("UPSTREAM", raising=False)
    monkeypatch.setattr(upstream, "ADDRESS", f"file://{tmp_path}/served/{{repository}}")
    monkeypatch.setattr(upstream, "KEPT", tmp_path / "kept")
    upstream._fetched.cache_clear()
    return made


def why_not(repository: str, commit: str) -> str:
    with pytest.raises(upstream.NotAvailable) as found:
        upstream.find(repository, commit)
    return str(found.value)


def test_one_commit_is_fetched_and_kept(commits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = upstream.find(NAME, commits[1])
    assert tree.read("file.txt") == "second"
    assert git(tree.folder, "rev-list", "--all", commits[1]) == commits[1]
    another = upstream.find(NAME, commits[0])
    assert (another.folder, another.read("file.txt")) == (tree.folder, "first")
    assert [f.name for f in (tmp_path / "kept").iterdir()] == ["owner+name"]
    monkeypatch.setattr(upstream, "ADDRESS", "file:///nowhere")
    upstream._fetched.cache_clear()
    assert upstream.find(NAME, commits[1]) == tree


def test_a_failed_fetch_leaves_nothing(commits: list[str], tmp_path: Path) -> None:
    assert why_not("owner/other", commits[0]).startswith(
        f"owner/other at {commits[0][:12]} could not be fetched: fatal: "
    )
    assert "0" * 40 in why_not(NAME, "0" * 40)
    assert "put a clone below UPSTREAM" in why_not(NAME, commits[0][:12])
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_server_that_does_not_respond(commits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "ADDRESS", "ext::sleep 60")
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "ext")
    monkeypatch.setattr(upstream, "TIMEOUT", 1)
    began = time.monotonic()
    assert why_not(NAME, commits[0]).endswith("not complete after 1 s")
    assert time.monotonic() - began < 30
    assert list((tmp_path / "kept").iterdir()) == []


def test_with_upstream_nothing_is_fetched(commits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM", str(tmp_path / "empty"))
    assert why_not(NAME, commits[0]) == f"no owner/name at {commits[0][:12]} below UPSTREAM ({tmp_path}/empty)"
    assert not (tmp_path / "kept").exists()
    monkeypatch.setenv("UPSTREAM", str(tmp_path / "served"))
    assert upstream.find(NAME, commits[0]).read("file.txt") == "first"
    assert why_not(NAME, "0" * 40).startswith("no owner/name at 000000000000 below UPSTREAM")


@pytest.mark.parametrize("there", [False, True], ids=["no source", "a source without the pinned commit"])
def test_what_was_not_checked_fails_the_run(there: bool, tmp_path: Path) -> None:
    if there:
        folder = tmp_path / "pytorch/xla"
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "another")
    command = [sys.executable, "-m", "pytest", "-q", "conformance/test_surfaces.py", "-k", "torch_xla.runtime"]
    env = {**os.environ, "UPSTREAM": str(tmp_path)}
    done = completed(command, cwd=ROOT, env=env)
    assert done.returncode == 1, done.stdout
    assert re.search(
        r"recorded: torch_xla.runtime +pytorch/xla 5fab7053df86 +not checked: no pytorch/xla at", done.stdout
    )
