"""Stops the local clusters, and the local AWS, of a process that ended without stopping them: killed, or out of time.

A guard is a process beside it, which reads a pipe. It acts when the pipe is closed, which the kernel does at any kind of end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

from sandbox import paths, processes

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
            [sys.executable, "-m", "sandbox.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths.python_path()},
            text=True,
            start_new_session=True,
        )
    print(json.dumps([kind, str(directory), watched]), file=guard.stdin, flush=True)


def main() -> None:
    """Read what is watched until the pipe is closed; then stop what still runs."""
    watched: dict[tuple[Kind, str], bool] = {}
    for line in sys.stdin:
        kind, directory, wanted = json.loads(line)
        watched[kind, directory] = wanted
    from sandbox import supervisor
    from sandbox.kubernetes import KubernetesFailed, LocalKubernetes
    from sandbox.local_aws import LocalAws, SandboxError
    from sandbox.slurm import LocalSlurm
    from sandbox.slurm_layout import SlurmFailed

    def stop(kind: Kind, directory: Path) -> None:
        if kind != "aws":
            (LocalSlurm if kind == "slurm" else LocalKubernetes).open(directory).stop()
            return
        aws = LocalAws.attach(directory)
        supervisor.end(directory)
        if aws:
            aws.stop()

    for (kind, directory), wanted in watched.items():
        if wanted:
            # it was stopped, or half of it is gone
            with contextlib.suppress(SlurmFailed, KubernetesFailed, SandboxError, OSError, ValueError):
                stop(kind, Path(directory))
            processes.stop_all(marked(directory))


def marked(directory: str) -> list[processes.Started]:
    """What still runs of a cluster or a local AWS, by the mark in its environment: its folder may be gone already."""
    marks = ("TRN_SANDBOX", "TRN_SANDBOX_KUBERNETES", "SANDBOX_DIR")
    found = processes.with_environment(lambda env: directory in map(env.get, marks))
    return [process for process, _, _ in found]


if __name__ == "__main__":
    main()
