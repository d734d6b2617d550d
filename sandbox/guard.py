"""Stops the local clusters, and the local AWS, of a process that ended without stopping them: killed, or out of time.

A guard is a second process (`guard_process`), which reads a pipe. It acts when the pipe is closed, which the kernel does at any kind of end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

from sandbox import paths

Kind = Literal["slurm", "kubernetes", "aws"]

_guards: dict[int, subprocess.Popen[str]] = {}
"""By the process that started it: a fork starts its own."""


def watch(kind: Kind, directory: Path) -> None:
    """Stop the cluster in this folder when this process ends."""
    _write(kind, directory, watched=True)


def release(kind: Kind, directory: Path) -> None:
    """Let it run on."""
    _write(kind, directory, watched=False)


def _write(kind: Kind, directory: Path, *, watched: bool) -> None:
    guard = _guards.get(os.getpid())
    if guard is None or guard.poll() is not None:
        guard = _guards[os.getpid()] = subprocess.Popen(
            [sys.executable, "-m", "sandbox.guard_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths.python_path()},
            text=True,
            start_new_session=True,
        )
    print(json.dumps([kind, str(directory), watched]), file=guard.stdin, flush=True)
