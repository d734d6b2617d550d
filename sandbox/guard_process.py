"""The process that `guard` starts: it stops what still runs once the process that it guards has ended. It imports everything at its start: the
folder of its source may be deleted until then."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from sandbox import processes, supervisor
from sandbox.guard import Kind
from sandbox.kubernetes import LocalKubernetes
from sandbox.local_aws import LocalAws
from sandbox.slurm import LocalSlurm


def main() -> None:
    """Read what is watched until the pipe is closed; then stop what still runs."""
    watched: dict[tuple[Kind, str], bool] = {}
    for line in sys.stdin:
        kind, directory, wanted = json.loads(line)
        watched[kind, directory] = wanted
    for (kind, directory), wanted in watched.items():
        if wanted:
            with contextlib.suppress(Exception):  # it was stopped, or half of it, or of this program, is gone
                stop(kind, Path(directory))
            processes.stop_all(marked(directory))


def stop(kind: Kind, directory: Path) -> None:
    if kind != "aws":
        (LocalSlurm if kind == "slurm" else LocalKubernetes).open(directory).stop()
        return
    aws = LocalAws.attach(directory)
    supervisor.end(directory)
    if aws:
        aws.stop()


def marked(directory: str) -> list[processes.Started]:
    """What still runs of a cluster or a local AWS, by the mark in its environment: its folder may be gone already."""
    marks = ("TRN_SANDBOX", "TRN_SANDBOX_KUBERNETES", "SANDBOX_DIR")
    found = processes.with_environment(lambda env: directory in map(env.get, marks))
    return [process for process, _, _ in found]


if __name__ == "__main__":
    main()
