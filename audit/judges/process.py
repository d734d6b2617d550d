"""Starting a judge that is a program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit.findings import ROOT, JudgeFailed

HERE = Path(sys.executable).parent
"""Programs of the main environment."""
THERE = ROOT / ".venvs/audit/bin"
"""Programs that pin too much to live in it."""
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(ROOT / ".cache/jsii")}


def run(
    command: Sequence[object],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0, 1),
) -> str:
    """What a program writes to standard output.

    It gets an environment and a home folder of its own: no setting of this machine or its user changes the findings.

    Args:
        env: further variables of its environment.
        accepted: exit codes of a program that did its work, with findings or without.

    Raises:
        JudgeFailed: it is not installed, or it ended with another code.
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
        raise JudgeFailed(f"{command[0]} is not installed: run `make audit`, which installs the judges") from e
    if done.returncode not in accepted:
        last = (done.stderr or done.stdout).strip()[-2000:]
        raise JudgeFailed(f"{Path(str(command[0])).name} ended with code {done.returncode}:\n{last}")
    return done.stdout
