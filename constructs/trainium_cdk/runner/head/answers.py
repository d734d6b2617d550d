"""Answers about jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .. import files, layout, slurm
from ..errors import NoMember, Theirs, Unknown
from ..readers.log import kept, progress
from ..records import SubmittedRecord, one_line
from ..requests import Active, Cluster, JobSettings, ListJobs, Status
from . import jobs, log_files
from .people import user
from .requeued import start
from .status import ACTIVE, JobStatus, shortened

_END = 65_536
"""Bytes of the end of a log, in which the training's last steps are."""


def list_jobs(cluster: Cluster, given: ListJobs) -> list[JobStatus]:
    """The newest jobs, newest first; then other users' that run or wait, if asked for."""
    found = _newest(cluster, given.limit)
    if given.others:
        rows = slurm.rows(others=True)
        found += _not_in(found, rows, cluster)
    return found


def status(cluster: Cluster, given: Status) -> JobStatus:
    """The status of a job, or of a member of an array; of another user's, what Slurm's queue has of it.

    Raises:
        Unknown: there is no such job.
        NoMember: the array has no such member.
    """
    id, index = layout.split(given.id)
    if (found := job_status(cluster, given.id)) is not None:
        return _with_progress(cluster, member(found, index))
    if (found := _of_others(cluster, id)) is None:
        raise Unknown(f"there is no job {id}")
    return member(found, index)


def _with_progress(cluster: Cluster, job: JobStatus) -> JobStatus:
    """Add the training's position, by the end of the job's log."""
    if job.members or not any(stage.name == "train" and stage.started for stage in job.stages):
        return job
    end = log_files.read_end(cluster, job.id, "train", _END)
    return replace(job, progress=one_line(progress(end)), kept=one_line(kept(end)))


def job_status(cluster: Cluster, given: str) -> JobStatus | None:
    """The status of one of this user's jobs, with what its accounting has, and what the disk has left; None: there is no such job."""
    id, member = layout.split(given)
    found = jobs.submissions(cluster, [id])
    if id not in found:
        return None
    asked = _started(cluster, found)
    submission = found[id]
    numbers = list(submission.numbers.values()) if submission else []
    accounts = slurm.accounts(numbers, [f"{id}:{stage}" for stage in slurm.STAGES]) if numbers else []
    free = os.statvfs(cluster.trn).f_bavail
    asked = replace(asked, accounts=tuple(accounts), full="" if free else cluster.shared_dir)
    return shortened(_describe(cluster, id, submission, asked), (*slurm.STAGES, member))


def own_job(cluster: Cluster, given: str, what: str) -> JobStatus:
    """The status of one of this user's jobs, or of a member of an array.

    Args:
        what: only its owner can do: `read its log`.

    Raises:
        Unknown: there is no such job.
        NoMember: the array has no such member.
        Theirs: it is another user's.
    """
    id, index = layout.split(given)
    found = job_status(cluster, given)
    if found is not None:
        return member(found, index)
    if other := _of_others(cluster, id):
        raise Theirs(f"{id} is a job of {other.user}, and you are {user()}: only {other.user} can {what}")
    raise Unknown(f"there is no job {id}")


def member(job: JobStatus, index: str) -> JobStatus:
    """The member of an array; without an index, the job.

    Raises:
        NoMember: it has no such member.
    """
    found = job.member(index) if index else job
    if found is None:
        has = f"it has {job.members[0].name} to {job.members[-1].name}" if job.members else "it is not an array"
        raise NoMember(f"{job.id} has no member {index}: {has}")
    return found


def settings(cluster: Cluster, given: JobSettings) -> Mapping[str, Any]:
    """See `requests.JobSettings`."""
    record = files.read_json(cluster.jobs / layout.split(given.id)[0] / "job.json")
    found = record.get("settings") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def active(cluster: Cluster, _: Active) -> list[JobStatus]:
    """The jobs of all users that run or wait, from Slurm itself: neither a job's files nor the number of jobs can hide one."""
    rows = slurm.everybody()
    return jobs.of_rows(rows, cluster, jobs.with_rows(rows))


def _newest(cluster: Cluster, limit: int) -> list[JobStatus]:
    found = jobs.submissions(cluster, jobs.newest(cluster, limit))
    asked = _started(cluster, found)
    return [shortened(_describe(cluster, id, submission, asked)) for id, submission in found.items()]


def _describe(cluster: Cluster, id: str, submission: SubmittedRecord | None, asked: jobs.Asked) -> JobStatus:
    """The status of a job. If it has ended, its variables are deleted: its batch script could not, if it was killed. A full file system stays full:
    it says why the job has ended."""
    found = jobs.describe(cluster, id, submission, asked)
    ended = all(stage.state not in (*ACTIVE, "UNKNOWN") for stage in (*found.stages, *found.members))
    if ended and submission and not asked.full and submission.cluster in ("", cluster.identity):
        layout.forget_variables(cluster.jobs / id)
    return found


def _started(cluster: Cluster, found: Mapping[str, SubmittedRecord | None]) -> jobs.Asked:
    """Start the jobs that need not wait any more. Return Slurm's data of these jobs after that."""
    asked = jobs.ask(cluster, found)
    ours = ((id, one) for id, one in found.items() if one and one.cluster in ("", cluster.identity))
    claims = {(id, stage, number) for id, one in ours for stage, number in one.numbers.items()}
    return jobs.ask(cluster, found) if start(cluster.jobs, asked.rows, claims) else asked


def _not_in(known: list[JobStatus], rows: list[slurm.Row], cluster: Cluster) -> list[JobStatus]:
    """The jobs of Slurm's queue that are not this user's."""
    ids = {job.id for job in known}
    rest = [row for row in rows if not (row.mine and row.id in ids)]
    return jobs.of_rows(rest, cluster, jobs.with_rows(rest))


def _of_others(cluster: Cluster, id: str) -> JobStatus | None:
    if not cluster.multi_user:
        return None
    rows = slurm.rows(names=[f"{id}:{stage}" for stage in slurm.STAGES], others=True)
    return next(iter(jobs.of_rows([row for row in rows if row.id == id], cluster, jobs.with_rows(rows))), None)
