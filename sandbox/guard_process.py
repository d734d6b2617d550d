"""The process that `guard` starts: it stops what still runs once the process that it guards has ended. It imports what stops a kind as soon as one
is watched: the folder of its source may be deleted until then."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from sandbox import processes
from sandbox.guard import Kind


def main() -> None:
    """Read what is watched until the pipe is closed; then stop what still runs."""
    watched: dict[tuple[Kind, str], bool] = {}
    for line in sys.stdin:
        kind, directory, wanted = json.loads(line)
        watched[kind, directory] = wanted
        stopper(kind)
    for (kind, directory), wanted in watched.items():
        if wanted:
            with contextlib.suppress(Exception):  # it was stopped, or half of it, or of this program, is gone
                stopper(kind)(Path(directory))
            processes.stop_all(marked(directory))


@cache
def stopper(kind: Kind) -> Callable[[Path], None]:
    """What stops one of this kind in a folder."""
    if kind == "slurm":
        from sandbox.slurm import LocalSlurm

        return lambda directory: LocalSlurm.open(directory).stop()
    if kind == "kubernetes":
        from sandbox.kubernetes import LocalKubernetes

        return lambda directory: LocalKubernetes.open(directory).stop()
    from sandbox import supervisor
    from sandbox.local_aws import LocalAws

    def stop(directory: Path) -> None:
        aws = LocalAws.attach(directory)
        supervisor.end(directory)
        if aws:
            aws.stop()

    return stop


def marked(directory: str) -> list[processes.Started]:
    """What still runs of a cluster or a local AWS, by the mark in its environment: its folder may be gone already."""
    marks = ("TRN_SANDBOX", "TRN_SANDBOX_KUBERNETES", "SANDBOX_DIR")
    found = processes.with_environment(lambda env: directory in map(env.get, marks))
    return [process for process, _, _ in found]


if __name__ == "__main__":
    main()
