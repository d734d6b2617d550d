"""Running a scanner that is a program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit.findings import ROOT, ScannerFailed

HERE = Path(sys.executable).parent
"""Programs of the project's environment."""
THERE = ROOT / ".venvs/audit/bin"
"""Programs whose pinned dependencies conflict with it."""
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(ROOT / ".cache/jsii")}


def run(
    command: Sequence[object],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0, 1),
) -> str:
    """Standard output of a program.

    It runs with its own environment and home folder, so that settings of this machine or its user do not change the findings.

    Args:
        env: additional environment variables.
        accepted: exit codes of a successful run, with findings or without.

    Raises:
        ScannerFailed: it is not installed, or exited with another code.
    """
    path = os.pathsep.join([str(HERE), str(THERE), os.environ.get("PATH", "")])
    try:
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=cwd,
                env={**_ENVIRONMENT, "HOME": home, **(env or {}), "PATH": path},
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
    except FileNotFoundError as e:
        raise ScannerFailed(f"{command[0]} is not installed: run `make audit`, which installs the scanners") from e
    if done.returncode not in accepted:
        last = (done.stderr or done.stdout).strip()[-2000:]
        raise ScannerFailed(f"{Path(str(command[0])).name} ended with code {done.returncode}:\n{last}")
    return done.stdout
