"""The vendors' source trees, at the commits of the job kinds.

`UPSTREAM` lists the folders (separated as in PATH) that contain them. A repository `owner/name` is looked up as

    owner__name@<first digits of the commit>/   a plain tree
    owner+name/repo, owner/name, name           a git directory or a checkout, which must hold the commit

Without `UPSTREAM`, the one commit is fetched from GitHub and kept in `.cache/upstream/owner+name`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandbox.archives import unpack

ADDRESS = "https://github.com/{repository}"
KEPT = Path(__file__).parents[1] / ".cache/upstream"
TIMEOUT = 600
"""Seconds for one repository."""
_ONE_PACK = ("-c", "fetch.unpackLimit=1", "-c", "gc.auto=0")
"""An interrupted fetch leaves no objects: a pack exists completely or not at all."""
_NO_STALLING = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30")


@dataclass(frozen=True)
class Tree:
    """One repository at one commit. `git` is a git directory; None where `folder` is a plain tree."""

    folder: Path
    commit: str
    git: bool

    def read(self, path: str) -> str | None:
        """A file's text; None where the tree has no such file."""
        if not self.git:
            file = self.folder / path
            return file.read_text("utf-8") if file.is_file() else None
        shown = _git(self.folder, "show", f"{self.commit}:{path}")
        return shown.stdout if shown.returncode == 0 else None

    def copy(self, path: str, target: Path) -> None:
        """Copy a folder of the tree to the same path below `target`. The rest of the tree is not needed: snapshots may lack large files.

        Raises:
            FileNotFoundError: the tree does not have the whole folder.
        """
        target.mkdir(parents=True, exist_ok=True)
        if not self.git:
            shutil.copytree(self.folder / path, target / path)
            return
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            archived = _git(self.folder, "archive", f"--output={file.name}", self.commit, "--", path)
            if archived.returncode:
                raise FileNotFoundError(f"{self.folder} has no {path} at {self.commit}: {archived.stderr.strip()}")
            with tarfile.open(file.name) as archive:
                unpack(archive, target)


class NotAvailable(Exception):
    """A source is not there, so that nothing could be compared with it: a failure, as nothing else is."""


def find(repository: str, commit: str) -> Tree:
    """The tree of `owner/name` at a commit.

    Raises:
        NotAvailable: it is not below UPSTREAM, or could not be fetched; the message has the reason.
    """
    if "UPSTREAM" not in os.environ:
        fetched = _fetched(repository, commit)
        if isinstance(fetched, str):
            raise NotAvailable(f"{repository} at {commit[:12]} could not be fetched: {fetched}")
        return fetched
    owner, _, name = repository.partition("/")
    for root in filter(None, os.environ["UPSTREAM"].split(os.pathsep)):
        for plain in Path(root).glob(f"{owner}__{name}@*"):
            if commit.startswith(plain.name.rpartition("@")[2]):
                return Tree(plain, commit, git=False)
        for place in (f"{owner}+{name}/repo", f"{owner}/{name}", name):
            folder = Path(root, place)
            if folder.is_dir() and _has(folder, commit):
                return Tree(folder, commit, git=True)
    raise NotAvailable(f"no {repository} at {commit[:12]} below UPSTREAM ({os.environ['UPSTREAM']})")


@cache
def _fetched(repository: str, commit: str) -> Tree | str:
    """The tree, fetched if it is not cached; otherwise the reason. One attempt for each commit and process."""
    kept = KEPT / repository.replace("/", "+")
    if kept.is_dir() and _has(kept, commit):
        return Tree(kept, commit, git=True)
    if len(commit) < 40:
        return "only the first digits of its commit are recorded, so put a clone below UPSTREAM"
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT, prefix=".fetch-") as scratch:
        folder = kept if kept.is_dir() else Path(scratch, "repository")
        subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True, capture_output=True)
        if (reason := _fetch(folder, ADDRESS.format(repository=repository), commit)) is not None:
            return reason
        if folder != kept:
            folder.rename(kept)
    return Tree(kept, commit, git=True)


def _fetch(folder: Path, address: str, commit: str) -> str | None:
    """Fetch one commit into a git directory; the reason if that fails."""
    options = [*_ONE_PACK, *_NO_STALLING]
    command = ["git", "-C", str(folder), *options, "fetch", "--quiet", "--no-tags", "--depth=1", address, commit]
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    # git transfers in a child process, which must end with it
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True) as git:
        try:
            _, errors = git.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(git.pid, signal.SIGKILL)
            return f"not complete after {TIMEOUT} s"
    if git.returncode == 0:
        return None
    lines = errors.strip().splitlines()
    return lines[0] if lines else f"git ended with exit code {git.returncode}"


def _has(folder: Path, commit: str) -> bool:
    return _git(folder, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
