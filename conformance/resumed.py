"""What `prepare` of a job with `--resume-from` does with the checkpoints, on a node whose shared file systems are in a folder."""

from __future__ import annotations

from pathlib import Path

from conformance import cases
from trainium_cdk.client.jobs.job_spec import job_spec
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import AnyJob
from trainium_cdk.runner.prepare import Here
from trainium_cdk.runner.prepare.resume import resume

JOB = "efs/trn/jobs/new"
"""The job's directory there."""


def resumed(job: AnyJob, earlier: Path, root: Path) -> Path:
    """The directory of a job that goes on from what an earlier one's directory of checkpoints has.

    Raises:
        RuntimeError: it has changed the earlier one's.
    """
    (root / JOB / "state").mkdir(parents=True)
    (root / "efs/earlier").symlink_to(earlier, target_is_directory=True)
    before = sorted((file.stat().st_mtime_ns, file) for file in earlier.rglob("*"))
    goes_on = job.model_copy(update={"resume_from": "/efs/earlier"})
    made = job_spec("new", plan(goes_on, cases.cluster("slurm", job)))
    resume(Here(root / JOB, root / "efs/trn", str(root), "python3", None, {}), made)
    if sorted((file.stat().st_mtime_ns, file) for file in earlier.rglob("*")) != before:
        raise RuntimeError(f"{earlier} was changed")
    return root / JOB
