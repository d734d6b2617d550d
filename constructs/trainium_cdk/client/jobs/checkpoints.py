"""Going on from the checkpoints of another job (`--resume-from`), on every engine. Pure.

The newest complete checkpoint is copied by the stage `prepare`, so that no Trainium node waits for it, into the directory where the kind's own program
looks for its checkpoints after a restart. The directory that it comes from is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import JobError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.models import Plan


def check(plan: Plan) -> None:
    """Check that a job can continue from the checkpoints that it names.

    Raises:
        JobError: its program starts from none, or they are on no shared file system of the cluster.
    """
    job, made = plan.job, plan.job.CHECKPOINTS
    name = job.resume_from
    if name is None:
        return
    if made is None:
        raise JobError(
            f"resume_from is {name}, but {job.kind} cannot continue from a checkpoint: it writes none. Remove --resume-from"
        )
    if name.startswith("s3://"):
        return
    mounts = plan.cluster.mount_dirs
    if name.startswith("/") and not any(f"{name}/".startswith(f"{mount}/") for mount in mounts):
        raise JobError(
            f"resume_from is {name}, which is on no shared file system of {plan.cluster.stack} ({', '.join(mounts)}). Copy it there "
            "(trn cp), or give the id of a job"
        )
    if job.after and name.partition("/")[0] == job.after.partition("/")[0]:
        raise JobError(
            f"{name} is given as --after and as --resume-from. Submit this job when {name} has ended, without --after"
        )


def problem(plan: Plan, record: Mapping[str, Any]) -> str:
    """Describe why a job cannot use the checkpoints of the one with this record; empty if it can, by the record. As `runner.prepare.resume`."""
    name, job, there = plan.job.resume_from, plan.job, record.get("checkpoints_of")
    if (kind := str(record.get("kind"))[:40]) != job.kind:
        return f"{name} is a job of kind {kind}, whose checkpoints {job.kind} does not read. Submit the same kind, or name another job"
    for key, value in job.layout(plan).items():
        if isinstance(there, dict) and there.get(key) != value:
            return (
                f"{name} has checkpoints of a job with {key} {str(there.get(key))[:100]}, and this job has {key} {value}, with which they "
                "cannot be read. Submit it with the same"
            )
    return ""
