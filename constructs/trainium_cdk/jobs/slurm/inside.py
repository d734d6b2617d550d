"""Commands on the nodes of a running job, as steps of it: they share its nodes, and end with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.sessions import terminal
from trainium_cdk.jobs.slurm import account
from trainium_cdk.jobs.slurm.tensorboard import Source
from trainium_cdk.jobs.status import JobStatus
from trainium_cdk.runner.requests import NodeOfJob


def check(status: JobStatus) -> None:
    """Check that steps can be started beside those of a job.

    Raises:
        JobError: the job does not run, or is an array.
    """
    if status.members and status.current.name == "train":
        raise JobError(
            f"{status.id} is an array of {len(status.members)}. Name a member, for example {status.id}/{status.members[0].name}"
        )
    if status.current.state != "RUNNING":
        raise JobError(f"{status.id} does not run: it is {status.state}. See trn status {status.id}")


def place(status: JobStatus, node: int | str) -> NodeOfJob:
    """One node of a job: by its number, or by its name, which Slurm refuses if the job does not have it.

    Raises:
        JobError: the job does not run, is an array, or has no node of that number.
    """
    check(status)
    if isinstance(node, str):
        return NodeOfJob(status.current.number, node)
    if not 0 <= node < status.nodes:
        raise JobError(f"{status.id} has nodes 0 to {status.nodes - 1}, not {node}. Choose one of them")
    return NodeOfJob(status.current.number, index=node)


def execute(source: Source, status: JobStatus, node: int, command: Sequence[str]) -> int:
    """Run it with this terminal. The exit code is the command's only where this machine is the head node: Session Manager reports none.

    Raises:
        JobError: as of `place`.
        TransportError: Session Manager's plug-in is not installed, or no session can be started.
    """
    words = [*source.ask(place(status, node)), *command]
    cluster, target = source.cluster, source.transport.instance
    if not target:
        return subprocess.run(words, check=False).returncode
    return terminal(target, cluster.region, account.run(cluster.job_user, quote.words(words), "sudo"))
