"""All of a Slurm cluster with one script: its nodes, the jobs of `trn`, and others' work. Pure."""

from __future__ import annotations

from dataclasses import replace

from trainium_cdk.jobs.slurm import nodes, others, snapshot
from trainium_cdk.jobs.status import Activity
from trainium_cdk.outputs import SlurmCluster


def script(cluster: SlurmCluster, limit: int) -> str:
    """It only reads.

    Args:
        limit: of jobs that are described; of all that run or wait, what Slurm's queue has.
    """
    return f"""( {nodes.SCRIPT} ) || exit 5
( {others.SCRIPT} ) || exit 5
{snapshot.ask_all(cluster, limit, others=True, repair=False)}"""


def parse(output: str, cluster: SlurmCluster) -> Activity:
    """What the output of `script` tells."""
    submitted = others.submitted(output)
    jobs = snapshot.parse(output, cluster).jobs
    return Activity(
        nodes.parse(output, cluster),
        tuple(job if job.submitted else replace(job, submitted=submitted.get((job.id, job.user))) for job in jobs),
        others.parse(output),
    )
