"""The process that `guard` starts: it stops what still runs once the process beside it has ended."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from sandbox import processes
from sandbox.guard import Kind


def main() -> None:
    """Read what is watched until the pipe is closed; then stop what still runs."""
    watched: dict[tuple[Kind, str], bool] = {}
    for line in sys.stdin:
        kind, directory, wanted = json.loads(line)
        watched[kind, directory] = wanted
    from sandbox import supervisor  # only now: most of these processes stop nothing
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
