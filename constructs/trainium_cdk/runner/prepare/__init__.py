"""Steps of a job before its nodes are asked for: they fetch sources, packages, data, models, checkpoints.

Here is what the steps share: their places, things that are made once for all jobs, and the virtual environments that programs run in. One is the
cluster's, the image's own, or one that a step has made on top of it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import Refused
from ..files import read_json, shared_root
from ..layout import UnknownPlace, folder_places, resolve
from ..spec import JobSpec, SpecError, Word, read_word

_FIND = "import importlib.util as i, sys\nprint(*[m for m in sys.argv[1:] if i.find_spec(m) is None])"


class NotFetched(Exception):
    """Something must be fetched, and this is only a check."""


class Failed(Exception):
    """Something could not be fetched or made. A second attempt continues from there."""


@dataclass
class Here:
    """The place where a job is prepared.

    Attributes:
        job: its folder.
        trn: the folder of data, sources and models.
        root: the prefix of an absolute path of a shared file system; empty but in a sandbox.
        python: the interpreter with the packages of the cluster or the image; then of the job's own packages.
        base: the cluster's virtual environment; None: the image's own Python.
        variables: of a process that is started here.
        check: nothing is fetched.
        addresses: presigned ones, by what they stand for.
    """

    job: Path
    trn: Path
    root: str
    python: str
    base: Path | None
    variables: Mapping[str, str] = field(repr=False)
    check: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        folder: Path,
        job: JobSpec,
        own: Mapping[str, str],
        *,
        check: bool = False,
        addresses: Mapping[str, str] | None = None,
    ) -> Here:
        root = shared_root()
        try:
            base = find_base(job.environment.venv, root)
        except (UnknownPlace, RuntimeError) as e:
            raise Refused(f"the cluster's virtual environment cannot be found: {e}") from None
        python = str(base / "bin" / "python3") if base else "python3"
        variables = {**os.environ, "LC_ALL": "C.UTF-8", **own}
        return cls(folder, folder.parent.parent, root, python, base, variables, check, addresses or {})

    def plain(self, value: Any) -> Any:
        """An argument of a step, whose words are resolved.

        Raises:
            Refused: it names a place that there is not while a job is prepared.
        """
        if isinstance(value, list) and any(isinstance(one, dict) for one in value):
            try:
                return resolve(read_word(value), folder_places(self.job, self.trn))
            except (SpecError, UnknownPlace) as e:
                raise Refused(f"a step of prepare has a word that this runner does not know: {e}") from None
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in value]
        return value

    def run(
        self, words: Sequence[str], *, folder: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> int:
        """Run a program, whose output is this one's. Returns its exit code.

        Args:
            folder: in which it starts; None: the folder of data, sources and models.
            variables: all of its variables; None: as for any process that is started here.

        Raises:
            Refused: there is no such program.
        """
        try:
            return subprocess.run(
                words,
                cwd=folder or self.trn,
                env=dict(self.variables if variables is None else variables),
                stdin=subprocess.DEVNULL,
                check=False,
            ).returncode
        except FileNotFoundError:
            raise Refused(self.without(words[0])) from None

    def ask(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a program. Returns its exit code, output and errors. Raises as `run`."""
        try:
            done = subprocess.run(
                words, cwd=self.job, env=dict(self.variables), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise Refused(self.without(words[0])) from None
        return done.returncode, done.stdout, done.stderr

    def absent_modules(self, names: Sequence[str]) -> str:
        """The modules that Python does not find here, with spaces between; empty if it finds all.

        Raises:
            Failed: Python did not answer.
        """
        code, output, errors = self.ask([self.python, "-c", _FIND, *names])
        if code:
            raise Failed(f"{self.python} failed: {errors.strip()[-300:]}")
        return output.strip()

    def without(self, program: str) -> str:
        """Describe the lack of a program, and the fix."""
        fix = "" if self.base else ". Use an image that has it, as the examples of trn image build do"
        return f"there is no program {program} here{fix}"


def say(text: str) -> None:
    """Tell the user, in the log of the stage. Standard output may be for an answer."""
    print(f"trn: {text}", file=sys.stderr, flush=True)


def once(here: Here, name: str, target: Path, make: Callable[[], None]) -> None:
    """Make something unless it was made and is still there. Jobs that need the same wait for each other, also on other nodes.

    Raises:
        NotFetched: it is to be made, and this is only a check.
    """
    marker = here.trn / "done" / name
    if marker.exists() and target.exists():
        return
    if here.check:
        raise NotFetched(name)
    marker.parent.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with marker.with_name(f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another job, which makes the same: {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (marker.exists() and target.exists()):
            make()
            marker.touch()


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def check_room(what: str, size: int, folder: Path) -> None:
    """Check that a file system has space.

    Raises:
        Failed: it has less than that many bytes.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise Failed(
            f"{what} needs {size} bytes more, and {free} bytes are free. Free space, or choose another directory"
        )


# --- the virtual environments that programs run in --------------------------------------------------------------------------------------

RECORD = "trn-environment.json"
"""In a virtual environment of `prepare`: what it is made of, for people. Its time says when a job used it last."""


def find_base(venv: Word, root: str) -> Path | None:
    """The cluster's virtual environment, without links; None for the image's own Python.

    Args:
        venv: of `spec.NodeEnvironment`.
        root: the prefix of a path of a shared file system, in a sandbox.

    Raises:
        UnknownPlace: it names another place.
        RuntimeError: `~USER` of a user that there is not.
    """
    if not venv:
        return None
    path = resolve(venv, {"root": root})
    return (Path(path).expanduser() if path.startswith("~") else Path.home() / path).resolve()


def find_own(folder: Path) -> Path | None:
    """The virtual environment of a job's own packages, which `prepare` has made or found; None if there is none, or it was removed.

    Args:
        folder: the job's, of an array the array's.
    """
    try:
        name = (folder / "environment").read_text()[:60].strip()
    except (OSError, UnicodeDecodeError):
        return None
    place = folder.parent.parent / "environments" / name
    return place if name.isalnum() and (place / "bin" / "python3").exists() else None


def activate(place: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a program finds a virtual environment's Python, programs and packages, as its script `activate` sets them."""
    record: Any = read_json(place / RECORD)
    below = record.get("programs") if isinstance(record, dict) else None
    path = [
        str(place / "bin"),
        *([below] if isinstance(below, str) and below else []),
        variables.get("PATH", os.defpath),
    ]
    made = {**variables, "VIRTUAL_ENV": str(place), "PATH": os.pathsep.join(path)}
    made.pop("PYTHONHOME", None)
    return made
