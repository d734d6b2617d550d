"""Checks of a job before it costs nodes."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from .. import arrays, blocks, layout, records, slurm
from ..errors import Refused, Unknown
from ..requests import Cluster
from ..spec import JobSpec, SpecError
from ..words import folder_places, resolve, shared_root
from . import people, sbatch
from .standing import ACTIVE, COMPLETED, stand


def open_folder(cluster: Cluster) -> None:
    """Make the jobs' folder, on a file system that all nodes see. The head node's bootstrap has made the one above it for this user.

    Raises:
        Refused: the file system is not mounted.
    """
    shared, locks = cluster.shared, cluster.jobs / ".locks"
    if not shared.is_dir() or not (shared_root() or shared.is_mount()):
        raise Refused(
            f"{cluster.shared_dir} is not mounted on this machine. Is it the head node, and its bootstrap complete?"
        )
    with contextlib.suppress(PermissionError):
        locks.mkdir(parents=True, exist_ok=True)
    if not os.access(locks, os.W_OK):
        raise Refused(f"{people.user()} may not write to {cluster.trn}. An administrator can make it theirs (chown)")


def check(cluster: Cluster, job: JobSpec, folder: Path) -> None:
    """Check what a job needs on the cluster, but what `prepare` fetches.

    Raises:
        Refused: something is not there.
        Later: Slurm does not answer.
    """
    places = folder_places(folder, cluster.trn)
    venv = os.path.expanduser(resolve(job.environment.venv, places))  # noqa: PTH111  an unknown ~USER stays
    if job.environment.venv_required and venv and not Path(venv, "bin/activate").is_file():
        raise Refused(
            f"there is no virtual environment at {venv}: the head node's bootstrap has not finished, or failed. Its log is /var/log/trn-bootstrap.log there"
        )
    for word in job.require:
        if not Path(resolve(word, places)).exists():
            raise Refused(f"there is no {resolve(word, {**places, 'root': ''})} on the cluster")
    if job.slurm and (job.slurm.account or job.slurm.qos):
        check_account(job.slurm.account, job.slurm.qos)


def check_account(account: str, qos: str) -> None:
    """Check that this user may use an account or a QoS. Without accounting, Slurm accepts every name, and it means nothing.

    Raises:
        Refused, Later: as `check`.
    """
    user = people.user()
    config = slurm.run("scontrol", "show", "config")
    if not any("slurmdbd" in line for line in config.splitlines() if line.startswith("AccountingStorageType")):
        raise Refused(
            "this cluster keeps no accounts, so that --account and --qos mean nothing. Remove them, or deploy with pcluster: {accounting: ...}"
        )
    told = slurm.run("sacctmgr", "-n", "-P", "show", "assoc", "where", f"user={user}", "format=account,qos")
    allowed = [line.partition("|")[::2] for line in told.splitlines()]
    if not any((not account or of == account) and (not qos or qos in has.split(",")) for of, has in allowed):
        what = " ".join(f"{name} {value}" for name, value in (("account", account), ("qos", qos)) if value)
        may = ";".join(f"{of} with qos {has}" for of, has in allowed) or "nothing"
        raise Refused(f"{user} may not use {what}. An administrator can allow it (sacctmgr). Allowed are: {may}")


def longest(cluster: Cluster, job: JobSpec) -> tuple[float | None, str]:
    """The seconds that an allocation may have which compiles first, and what its user must know where that is too little to compile in addition to the time
    limit. None: there is no limit, or nothing compiles, or Slurm does not tell.

    Raises:
        Later: Slurm does not answer.
    """
    stages = sbatch.batches(job.stages)[-1]
    own, wanted = stages[-1].seconds, sbatch.time_limit(stages)
    if job.slurm is None or own is None or wanted is None or wanted == own:
        return None, ""
    queue, limits = job.slurm.queue, list[tuple[float, str]]()
    partition = _told("scontrol", "-o", "show", "partition", queue)
    if (seconds := slurm.seconds(slurm.field("MaxTime", partition))) is not None:
        limits.append((seconds, f"queue {queue}"))
    of = slurm.field("QoS", partition)
    for name in filter(None, (job.slurm.qos, of if of != "N/A" else "")):
        told = _told("sacctmgr", "-n", "-P", "show", "qos", "where", f"name={name}", "format=maxwall")
        if (seconds := slurm.seconds(told)) is not None:
            limits.append((seconds, f"QoS {name}"))
    ends = [one for one in blocks.read(cluster.jobs) if one.queue == queue and one.stops > time.time()]
    if ends:
        last = max(ends, key=lambda one: one.stops)
        limits.append((last.stops - time.time(), f"capacity block {last.id}"))
    most, name = min(limits, default=(None, ""))
    if most is None or most >= wanted:
        return most, ""
    rest = max(0, int(most) - own)
    after = f" after {sbatch.clock(rest)}" if rest else ""
    return (
        most,
        f"{name} allows {sbatch.clock(int(most))}: compiling counts in the time limit of {sbatch.clock(own)}{after}",
    )


def _told(*words: str) -> str:
    try:
        return slurm.run(*words)
    except Refused:  # there is no such queue, which sbatch says, or no accounting
        return ""


def wait_for(cluster: Cluster, after: str) -> str:
    """Return sbatch's dependency for a job that begins after another one, or a member of it; empty if that has completed.

    Raises:
        Refused: there is no such job, or it will not complete.
        Later: Slurm does not answer.
    """
    try:
        other, member = layout.split(after)
    except Unknown as e:
        raise Refused(f"{e} on this cluster. Give another one as --after") from None
    folder = cluster.jobs / other
    record = records.submitted(folder)
    if record is None or "train" not in record.numbers:
        raise Refused(f"there is no job {other} on this cluster. Give another one as --after")
    if record.cluster != cluster.identity:
        raise Refused(f"{other} is a job of another cluster on this file system. Remove --after")
    array, number = array_of(folder), record.numbers["train"]
    if member and member not in map(str, arrays.indices(array) if array else ()):
        raise Refused(f"{other} has no member {member}. Give another one as --after")
    rows = slurm.rows(numbers=[number], ended=True, members=bool(member))
    if member:
        rows = [row for row in rows if row.index == member]
        how = stand(folder / member, other, record.numbers, "train", rows)
    else:
        how = stand(folder, other, record.numbers, "train", rows, array)
    if how == COMPLETED:
        return ""
    if how != ACTIVE:
        raise Refused(
            f"{after} has not completed, and does not run: this job would never begin. Remove --after, or submit {other} again"
        )
    return f"afterok:{number}_{member}" if member else f"afterok:{number}"


def array_of(folder: Path) -> str:
    """The indices of a job's members, as its record has them; empty of one that is not an array, or whose record is damaged."""
    try:
        array = layout.read_job(folder).array
    except SpecError:
        return ""
    return array if array and re.fullmatch(arrays.PATTERN, array) and not arrays.problem(array) else ""
