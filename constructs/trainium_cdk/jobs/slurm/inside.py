"""Commands on the nodes of a running job, as steps of it: they share its nodes, and end with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.sessions import terminal
from trainium_cdk.jobs.slurm import account
from trainium_cdk.jobs.slurm.transport import Transport
from trainium_cdk.jobs.status import JobStatus
from trainium_cdk.outputs import SlurmCluster


def step(status: JobStatus) -> str:
    """The options of srun for a step beside those of the job. Raises as `check` does."""
    check(status)
    number = quote.word(status.current.number)
    if "_" in number:  # of a member: srun of Slurm 22.05 takes only the number of its own that Slurm gives it
        number = f'"$(squeue -h -j {number} -o %A)"'
    return f"srun --jobid={number} --overlap --quiet"


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


def check_one(status: JobStatus, node: int | str) -> None:
    """Check the same of one node: by its number, or by its name, which Slurm refuses if the job does not have it.

    Raises:
        JobError: the job does not run, is an array, or has no node of that number.
    """
    check(status)
    if isinstance(node, int) and not 0 <= node < status.nodes:
        raise JobError(f"{status.id} has nodes 0 to {status.nodes - 1}, not {node}. Choose one of them")


def one_node(status: JobStatus, node: int) -> str:
    """The options of srun for a step on one node of a job. Raises as `check_one` does."""
    check_one(status, node)
    name = (
        f'$(scontrol show hostnames "$(squeue -h -j {quote.word(status.current.number)} -o %N)" | sed -n {node + 1}p)'
    )
    return f'{step(status)} --nodes=1 --ntasks=1 --nodelist="{name}"'


def execute(cluster: SlurmCluster, transport: Transport, status: JobStatus, node: int, command: Sequence[str]) -> int:
    """Run it with this terminal. The exit code is the command's only where this machine is the head node: Session Manager reports none.

    Raises:
        JobError: as of `one_node`.
        TransportError: Session Manager's plug-in is not installed, or no session can be started.
    """
    line = f"{one_node(status, node)} --pty {quote.words(command)}"
    if not transport.instance:
        return subprocess.run(["bash", "-c", line], check=False).returncode
    return terminal(transport.instance, cluster.region, account.run(cluster.job_user, line, "sudo"))
