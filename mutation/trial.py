"""Runs the tests of a room on a copy of this checkout with one fault in it.

Each run is a fork of this process, which has imported the packages of others already: that is half of what a test run does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import sandbox
from mutation.rooms import ROOT
from sandbox import LocalAws

_CRASHED = 99
_NOT_RUN = {3, 5, _CRASHED}
"""Exit codes: pytest's own for an internal error, and no tests; and ours. Not 4: a fault at which Python warns ends the import of a
`conftest.py`."""
_FORK = threading.Lock()


def preload() -> None:
    """Import what the tests need and is not ours."""
    for name in ("boto3", "hypothesis", "pydantic", "pytest", "ruamel.yaml", "typer", "xdist.scheduler", "yaml"):
        importlib.import_module(name)


class Called:
    """A plugin of pytest: which functions of ours each test calls, as `file:line`."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._prefix, self._file, self._now = f"{folder}/constructs/", file, ""
        self._found: dict[str, set[str]] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._now = nodeid
        sys.setprofile(self._call)
        threading.setprofile(self._call)

    def _call(self, frame: types.FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(self._prefix):
            line = f"constructs/{name.removeprefix(self._prefix)}:{frame.f_code.co_firstlineno}"
            self._found.setdefault(self._now, set()).add(line)

    def pytest_sessionfinish(self) -> None:
        sys.setprofile(None)
        self._file.write_text(json.dumps({test: sorted(names) for test, names in self._found.items()}, indent=1))


class Only:
    """A plugin of pytest: of the tests that it has found, some, or all others. All of them if a fault has changed every name."""

    def __init__(self, tests: Set[str], others: bool = False) -> None:
        self._tests, self._others = tests, others

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if (item.nodeid in self._tests) != self._others] or items


class Tests(NamedTuple):
    """The tests that a fault meets, in the order of their runs."""

    files: Sequence[str] = ()
    """Those of their tests that need no server: the first ones before, the others after those with servers."""
    first: Set[str] = frozenset()
    """Tests without servers that call what has changed."""
    served: Set[str] = frozenset()
    """Tests with servers that do."""
    real: Sequence[str] = ()
    """Files with tests that may need servers, which call it in another process."""

    def runs(self) -> list[tuple[list[str], str, list[Only]]]:
        """Files, what `PARTS` is, and the plugin that selects tests."""
        first, served = (sorted({test.partition("::")[0] for test in some}) for some in (self.first, self.served))
        return [
            ([file for file in self.files if file in first], "none", [Only(self.first)]),
            (served, "", [Only(self.served)]),
            (list(self.real), "", []),
            (list(self.files), "none", [Only(self.first, others=True)]),
        ]


class Copy:
    """A copy of the checkout's files, which runs of tests may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.limit = 3600.0
        """Seconds that a run may take: a fault may make a program wait forever."""
        self._late = False
        """Whether the last run was ended for that."""
        self._temporary = tempfile.TemporaryDirectory(prefix="trn-mutation-")
        """Not in the checkout: what is in `.cache` is ignored by its `.gitignore`."""
        Path(self._temporary.name).chmod(0o755)  # some tests have other users
        self._files = Path(self._temporary.name) / "tmp"
        """What a run leaves: it ends without the functions that would delete it, and some runs leave 2 GB."""
        self._changes = 0
        self._aws: LocalAws | None = None
        self.output = folder.with_suffix(".log")
        shutil.rmtree(folder, ignore_errors=True)
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for name in (".venv", ".venvs", ".cache", "node_modules"):
            (folder / name).symlink_to(ROOT / name)

    def called(self, tests: list[str], parts: str = "none") -> dict[str, list[str]]:
        """Test -> the functions that it calls, as `file:line`.

        Raises:
            RuntimeError: the tests fail without a fault.
        """
        file = self.folder.with_suffix(".called.json")
        if self._run(tests, parts=parts, plugins=[Called(self.folder, file)]):
            raise RuntimeError(f"the tests fail without a fault:\n{self.output.read_text('utf-8', 'replace')[-3000:]}")
        found: dict[str, list[str]] = json.loads(file.read_text())
        return found

    def failing(self, tests: Tests) -> str:
        """The first test that fails; empty if all pass.

        Raises:
            RuntimeError: pytest itself failed, for example as the disk is full: that says nothing about the tests.
        """
        for some, parts, plugins in tests.runs():
            if some and (code := self._run(some, parts=parts, plugins=plugins)):
                self.close()  # what the failed test has left in the local AWS would make others fail
                if code in _NOT_RUN:
                    raise RuntimeError(f"pytest ended with {code}: {self.output.read_text('utf-8', 'replace')[-3000:]}")
                words = self.output.read_text("utf-8", "replace")
                found = re.search(r"^(?:FAILED|ERROR) (\S+)", words, re.M)
                return found[1] if found else f"pytest ended with {code}"
        return ""

    def failing_for(self, file: str, code: str, tests: Tests) -> str:
        """As `failing_with`, but for what fails on a busy machine anyway: the test that has failed must pass without the fault; after a
        run that did not end, the same one without it must end in a quarter of the time.

        Raises:
            RuntimeError: also: three times it was not so.
        """
        for _ in range(3):
            found = self.failing_with(file, code, tests)
            busy: object
            if self._late:
                found, began = f"no end in {self.limit:.0f} s", time.monotonic()
                busy = self.failing(tests) or time.monotonic() - began > self.limit / 4
                self.limit *= 2 if busy else 1
            else:
                test = found.partition("::")[0]
                parts = "" if found in tests.served or test in tests.real else "none"
                busy = "::" in found and self._run([test], parts=parts, plugins=[Only({found})])
            if not busy:
                return found
        raise RuntimeError(f"{found} without a fault too")

    def failing_with(self, file: str, code: str, tests: Tests) -> str:
        """As `failing`, with other contents of one file."""
        path = self.folder / file
        before, times = path.read_bytes(), path.stat()
        path.write_text(code, "utf-8")
        self._changes += 1  # Python knows an outdated compiled file by the second, and its size
        os.utime(path, (self._changes, self._changes))
        try:
            return self.failing(tests)
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def close(self) -> None:
        if self._aws:
            self._aws.stop()
            self._aws = None

    def _run(self, tests: list[str], *, parts: str, plugins: Sequence[object] = ()) -> int:
        """pytest's exit code, or minus the number of the signal that ended it."""
        with _FORK:
            if not parts and self._aws is None:
                self._aws = LocalAws.start()
                self._aws.bootstrap()
            pid = os.fork()
        if pid == 0:
            self._child(tests, parts, plugins)
        until, self._late = time.monotonic() + self.limit, False
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() > until:
                self._late = True
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what a failed test has started
        self._end_programs()
        shutil.rmtree(self._files, ignore_errors=True)
        return os.waitstatus_to_exitcode(status)

    def _end_programs(self) -> None:
        """Servers, and their jobs, that a run has left: they have groups of their own, and name its folders."""
        mark = f"{self._temporary.name}/".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if any(mark in (process / file).read_bytes() for file in ("environ", "cmdline")):
                    os.kill(int(process.name), signal.SIGKILL)

    def _child(self, tests: list[str], parts: str, plugins: Sequence[object]) -> None:
        import pytest

        code = _CRASHED
        try:
            os.setsid()
            self._files.mkdir()
            os.environ["TMPDIR"], tempfile.tempdir = str(self._files), None
            output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(self.folder)
            path = f"{Path(sys.executable).parent}:{ROOT / 'node_modules/.bin'}:{os.environ['PATH']}"
            os.environ |= {"PARTS": parts, "PYTHONPATH": str(self.folder / "constructs"), "PATH": path}
            for name in [n for n in sys.modules if n.partition(".")[0] in ("trainium_cdk", "stacks", "tests")]:
                del sys.modules[name]  # the local AWS has imported them from the checkout
            sandbox.__path__ = [str(self.folder / "sandbox")]  # the checkout may change before they import more of it
            here = {str(ROOT), str(ROOT / "constructs"), ""}
            sys.path[:] = [str(self.folder), *(entry for entry in sys.path if entry not in here)]
            if self._aws is not None:  # one for all runs: it takes longer to start than most of them
                aws = self._aws
                setattr(LocalAws, "start", lambda *_, **__: contextlib.nullcontext(aws))  # noqa: B010
                setattr(LocalAws, "bootstrap", lambda *_: None)  # noqa: B010
            options = [
                "--basetemp",
                f"{self._temporary.name}/pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
            ]
            code = pytest.main([*options, *tests], plugins)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(code))
