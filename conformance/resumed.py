"""What `prepare` of a job with `--resume-from` does with the checkpoints, on a node whose shared file systems are in a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conformance import cases
from trainium_cdk.jobs import AnyJob, checkpoints, shell
from trainium_cdk.jobs.models import Template
from trainium_cdk.jobs.plan import plan

JOB = "efs/trn/jobs/new"
"""The job's directory there."""


def prepared(job: AnyJob, root: Path, mode: str = "fetch") -> subprocess.CompletedProcess[str]:
    """Run it with bash."""
    made = checkpoints.complete(Template(""), plan(job, cases.cluster("slurm", job)))
    lines = f"job=$root/{JOB} trn=$root/efs/trn python=python3 base=b index=i mode={mode}\n"
    text = f"{lines}{shell.fetch().decode()}\nmkdir -p $job/state\n{made.prepare}"
    env = {**os.environ, "root": str(root), "TRN_SHARED_ROOT": str(root)}
    return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False)


def resumed(job: AnyJob, earlier: Path, root: Path) -> Path:
    """The directory of a job that goes on from what an earlier one's directory of checkpoints has.

    Raises:
        RuntimeError: it failed, or has changed the earlier one's.
    """
    (root / "efs").mkdir(parents=True)
    (root / "efs/earlier").symlink_to(earlier, target_is_directory=True)
    before = sorted((file.stat().st_mtime_ns, file) for file in earlier.rglob("*"))
    done = prepared(job.model_copy(update={"resume_from": "/efs/earlier"}), root)
    if done.returncode or sorted((file.stat().st_mtime_ns, file) for file in earlier.rglob("*")) != before:
        raise RuntimeError(f"exit code {done.returncode}, or {earlier} was changed: {done.stdout}{done.stderr}")
    return root / JOB
