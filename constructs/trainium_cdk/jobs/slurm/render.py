"""From a job and a Slurm cluster to what is sent: the job as data, which the runner carries out. Pure.

A job is a chain of Slurm jobs, each starts when the one before has completed, and is cancelled by Slurm if that is no longer possible:

    prepare     fetches code, data and packages, on one node of the CPU queue, or else of the cheapest queue. Unlike
                the head node it may fail, be requeued and resume, and Slurm has its state and log; it is
                skipped if everything is already fetched.
    precompile  compiles the graphs into each node's own cache, and then ties `train` to its nodes.
    train       trains; requeued after a node failure, it resumes from its last checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs.job_spec import Submission, job_id, job_spec
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import plan
from trainium_cdk.jobs.pyz import pyz
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.head import sbatch
from trainium_cdk.runner.program import PLACE
from trainium_cdk.runner.spec import Job as JobSpec
from trainium_cdk.runner.spec import Stage, to_json

_HIDDEN = "(not shown)"


@dataclass(frozen=True)
class SlurmSubmission(Submission):
    """The job for the runner, which writes its folder and submits its stages."""

    spec: JobSpec = field(repr=False)

    @property
    def text(self) -> str:
        """The job, and what sbatch gets for each stage. Of variables only the names, as they may be secrets; of files the sizes."""
        job = to_json(self.spec)
        if self.spec.variables:
            job["variables"] = dict.fromkeys(self.spec.variables, _HIDDEN)
        if self.spec.files:
            job["files"] = {name: f"{len(content):,} bytes" for name, content in self.spec.files.items()}
        shown = {"job": job, "stages": [self._stage(stage) for stage in self.spec.stages]}
        return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"

    def _stage(self, stage: Stage) -> dict[str, Any]:
        folder = Path(self.directory)
        runner = f"{self.plan.cluster.shared_dir}/{PLACE}/{pyz().name}.pyz"
        first, several = self.spec.stages[0] is stage, len(self.spec.stages) > 1
        options = sbatch.options(self.spec, stage, folder, chained=first and several)
        return {"sbatch": options, "script": sbatch.script(runner, folder, stage.name)}


def render(job: Job, cluster: SlurmCluster, token: str, *, catalog: Catalog | None = None) -> SlurmSubmission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = job_id(job, token), plan(job, cluster)
    made = job_spec(name, fitted, catalog)
    directory = f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}"
    return SlurmSubmission(name, directory, fitted, made.files, made)
