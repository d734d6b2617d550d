"""`trn cp`: copies files between this machine and a cluster."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.named import as_given
from trainium_cdk.client.cli.options import Target, at, backend, on_cluster
from trainium_cdk.client.cli.output import log, status_when_interrupted
from trainium_cdk.client.cli.progress import ProgressBar, size
from trainium_cdk.client.jobs.buckets import SCHEME
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.errors import JobError, TrnError

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.copy import CopyPlan

CLUSTER = "cluster"
CHECKPOINTS = "checkpoints"


@on_cluster()
def cp(
    on: Target,
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A file, or a folder, whose content is copied; or s3://bucket/prefix.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="A folder; for a file also its new name, if no folder has it.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Print what would be copied, and copy nothing.")
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="Kubernetes: image with Python 3.9 or newer. Default: a small one.")
    ] = None,
) -> None:
    """Copy files to or from a cluster.

    cluster:/efs/PATH is on its shared file system, JOB:PATH (JOB/INDEX:PATH of a member of an array) is in a job's directory.

    For example `trn cp data/ cluster:/fsx/data`, or `trn cp latest:checkpoints ./out`: JOB:checkpoints is the directory of the job's
    checkpoints, whatever its kind calls it. Files with the same size and time are there
    already. After an interruption, the same command copies those that are missing. The files go through the stack's bucket, and are compared with
    their SHA-256.

    With `trn cp s3://bucket/prefix cluster:/fsx/data`, or back, the cluster reads and writes your bucket itself, as `aws s3 sync` does.
    """
    if odd := next((one for one in (source, target) if one[:3].lower() == "s3:" and not one.startswith(SCHEME)), ""):
        raise JobError(f"{odd[:80]} is not an address in S3. Write s3://BUCKET/KEY")
    there, here = _remote(source), _remote(target)
    if (there is None) == (here is None):
        raise JobError(
            f"one of {source[:80]} and {target[:80]} is on the cluster, and the other one on this machine or in S3. Write cluster:/PATH for a shared "
            "file system, JOB:PATH for a job's directory, and ./PATH for a file of this machine with a colon in its name"
        )
    jobs = backend(on)
    bar = ProgressBar("copying", unit="bytes")
    if here and here[0] != CLUSTER:
        raise JobError("a job's directory belongs to the job. Copy to cluster:/PATH, on a shared file system")
    plan, copy = _planned(jobs, source, target, image, bar)
    log_plan(plan)
    if dry_run:
        return
    again = printed("trn", "cp", source, target, *(["--image", image] if image else [])) + at(on)
    rest = f"what has arrived stays there. To copy the rest: {again}"
    try:
        with status_when_interrupted(lambda: rest), bar(plan.todo):
            copy(plan)
    except TrnError:
        log(rest)
        raise
    log(f"{plan.target} is complete")


def _planned(
    jobs: Backend, source: str, target: str, image: str | None, bar: ProgressBar
) -> tuple[CopyPlan, Callable[[CopyPlan], None]]:
    """Plan a copy. Return the plan, and the function that carries it out."""
    from trainium_cdk.client.jobs.copy import BucketCopy

    copy = BucketCopy(jobs, image=image, progress=bar.add)
    if there := _remote(source):
        path = _path(jobs, *there)
        if target.startswith(SCHEME):
            return copy.plan_store(path, target), copy.store
        return copy.plan_download(path, os.path.expanduser(target)), copy.download  # noqa: PTH111  a Path has no slash at its end
    _, path = _remote(target) or ("", "")
    if source.startswith(SCHEME):
        return copy.plan_fetch(source, path), copy.fetch
    return copy.plan_upload(Path(source).expanduser(), path), copy.upload


def log_plan(plan: CopyPlan) -> None:
    """Log what is copied, and what is left out. Raises JobError: the target has no room for it."""
    count = f"{len(plan.entries):,} file{'s' * (len(plan.entries) != 1)}, {size(plan.size)}"
    done = (
        f"; {plan.complete:,} complete already, {size(plan.todo)} left to copy"
        if plan.todo != plan.size or plan.complete
        else ""
    )
    log(f"{plan.source} to {plan.target}: {count}{done}")
    for name in plan.left_out[:10]:
        log(f"left out: {name}")
    if len(plan.left_out) > 10:
        log(f"left out: {len(plan.left_out) - 10} more")
    if plan.todo > plan.free:
        raise JobError(
            f"{size(plan.todo)} do not fit: {size(plan.free)} are free at {plan.target}. Make room there, or choose another"
        )


def _remote(text: str) -> tuple[str, str] | None:
    """Split a path on the cluster at its colon. Return the texts before and after it; None for a path of this machine."""
    place, colon, path = text.partition(":")
    if text.startswith(SCHEME):
        return None
    job, slash, member = place.partition("/")  # a/b:c is a file of this machine, JOB/3:c one of a member of an array
    ours = job and not job.startswith(".") and (not slash or member.isdecimal())
    return (place, path) if colon and ours else None


def _path(jobs: Backend, place: str, path: str) -> str:
    if place == CLUSTER:
        return path
    if path.startswith("/") or ".." in path.split("/"):
        raise JobError(
            f"{path[:80]} is not a path in a job's directory. Write JOB:checkpoints, for example, or cluster:{path[:80]}"
        )
    status = jobs.status(as_given(jobs, place))
    first, _, rest = path.partition("/")
    if first == CHECKPOINTS and status.checkpoints:
        return posixpath.join(status.checkpoints, rest) if rest else status.checkpoints
    return posixpath.join(status.directory, path)
