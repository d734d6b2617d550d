"""The vendors' source trees, at the commits that the job kinds name.

`UPSTREAM` names the folders (separated as in PATH) that hold them. A repository `owner/name` is looked for as

    owner__name@<first digits of the commit>/   a plain tree
    owner+name/repo, owner/name, name           a git directory or a checkout, which must hold the commit
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sandbox.archives import unpack


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
        """Copy a folder of the tree below `target`, at the same path. The rest need not be there: snapshots may lack large files.

        Raises:
            FileNotFoundError: the tree has no such folder, or not all of it.
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


def find(repository: str, commit: str) -> Tree | None:
    """The tree of `owner/name` at a commit; None where `UPSTREAM` has none."""
    owner, _, name = repository.partition("/")
    for root in filter(None, os.environ.get("UPSTREAM", "").split(os.pathsep)):
        for plain in Path(root).glob(f"{owner}__{name}@*"):
            if commit.startswith(plain.name.rpartition("@")[2]):
                return Tree(plain, commit, git=False)
        for place in (f"{owner}+{name}/repo", f"{owner}/{name}", name):
            folder = Path(root, place)
            if folder.is_dir() and _git(folder, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0:
                return Tree(folder, commit, git=True)
    return None


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
