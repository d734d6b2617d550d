"""Starting a judge that is a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit.findings import ROOT, JudgeFailed

HERE = Path(sys.executable).parent
"""Programs of the main environment."""
THERE = ROOT / ".venvs/audit/bin"
"""Programs that pin too much to live in it."""


def run(
    command: Sequence[object],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    accepted: Sequence[int] = (0, 1),
) -> str:
    """What a program writes.

    Args:
        accepted: exit codes of a program that did its work, with findings or without.

    Raises:
        JudgeFailed: it is not installed, or it ended with another code.
    """
    path = os.pathsep.join([str(HERE), str(THERE), os.environ.get("PATH", "")])
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, **(env or {}), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as e:
        raise JudgeFailed(f"{command[0]} is not installed: run `make audit`, which installs the judges") from e
    if done.returncode not in accepted:
        last = (done.stderr or done.stdout).strip()[-2000:]
        raise JudgeFailed(f"{Path(str(command[0])).name} ended with code {done.returncode}:\n{last}")
    return done.stdout
