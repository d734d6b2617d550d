"""Submit jobs to Slurm, each once, whatever happens between: the same request, sent again, finishes what has begun.

`submitted.json` is written last: until then, a stage that has begun waits (`work.stage.belongs`). A folder without it is of a submission that was
interrupted, which is undone: its stages are found by their names, as no other jobs have them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from .. import blocks, files, layout, records, slurm
from ..errors import Later, Refused, ReportedError, Taken, Unknown
from ..files import shared_root
from ..layout import folder_places, resolve
from ..records import State, SubmittedRecord
from ..requests import Cluster, Error, Outcome, SubmitJobs
from ..slurm import Row
from ..spec import JobSpec, StageSpec, array_indices, to_json

LOCK_SECONDS = 60
_INACTIVE = "Required partition not available (inactive or drain)"
"""What sbatch prints if the queue's partition is INACTIVE."""
_FULL = re.compile("unable to accept job|job queue full")
"""What sbatch says first when Slurm has MaxJobCount jobs; then it tries for 120 seconds (Slurm 22.05 and 26.05, sbatch.c)."""
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def submit_jobs(cluster: Cluster, given: SubmitJobs) -> list[Outcome]:
    """Submit jobs of one user and cluster. That one is refused does not concern the others. After the first error of the kind `later`, no further
    job is begun.
    """
    os.umask(0o022)
    open_folder(cluster)
    told, wait = list[Outcome](), ""
    with _finishing() as signals:
        for job in given.jobs:
            wait = wait or (f"it got signal {signals[0]}, which ends it" if signals else "")
            try:
                if wait:
                    raise Later(wait)
                told.append(submit(cluster, job, given.addresses))
            except ReportedError as e:
                told.append(Outcome(error=Error(e.kind, f"{e}{_hint(cluster, e)}")))
                wait = str(e) if isinstance(e, Later) else ""
    return told


def _hint(cluster: Cluster, error: ReportedError) -> str:
    if _INACTIVE not in str(error):
        return ""
    from .jobs import inactive

    return f". {inactive(cluster)}"


def submit(cluster: Cluster, job: JobSpec, addresses: Mapping[str, str]) -> Outcome:
    """Submit a job once.

    Args:
        addresses: presigned, of what its client sends; no part of what it is.

    Raises:
        Refused: Slurm, or a check, refuses it. Nothing of it is left.
        Taken: there is another job by its id.
        Later: Slurm does not answer.
    """
    if not layout.ID.fullmatch(job.id):
        raise Refused(f"{job.id!r:.100} is not the id of a job. Use letters, digits, dots and hyphens")
    folder = cluster.jobs / job.id
    with _lock(cluster, job.id):
        there = records.submitted(folder)
        if there is None and not os.path.lexists(folder / "submitted.json"):
            return _begin(cluster, job, folder, addresses)
        _check_same(cluster, job, there)
        assert there is not None  # noqa: S101  checked just before
        numbers, again = _complete(cluster, job, folder, there)
        return Outcome(numbers, existing=True, resubmitted=tuple(again))


def digest_of(job: JobSpec) -> str:
    """Return the SHA-256 of a job: of all of it, with its variables and files. The runner's version is not part of it."""
    return hashlib.sha256(json.dumps(to_json(job), sort_keys=True).encode()).hexdigest()


def _check_same(cluster: Cluster, job: JobSpec, there: SubmittedRecord | None) -> None:
    if there is None:
        raise Taken(f"{job.id} already exists, and its record (submitted.json) is damaged. Use a new token")
    if there.cluster != cluster.identity:
        head = there.cluster[:60]
        raise Taken(f"{job.id} is a job of another cluster on this file system (head node {head}). Use a new token")
    if there.digest != digest_of(job):
        raise Taken(f"{job.id} already exists as another job. Use a new token, or submit the same job")


def _begin(cluster: Cluster, job: JobSpec, folder: Path, addresses: Mapping[str, str]) -> Outcome:
    if job.slurm is None:
        raise Refused(f"{job.id} is not a job for Slurm")
    if os.path.lexists(folder):
        _undo(job, folder)
    runner = layout.path_for_jobs(cluster)
    numbers: dict[str, str] = {}
    try:
        layout.lay_out(folder, job)
        check(cluster, job, folder)
        after = wait_for(cluster, job.slurm.after) if job.slurm.after else ""
        most, note = longest(cluster, job)
        for stages in slurm.batches(_needed(job, folder, addresses)):
            number = _send(job, folder, runner, stages, after, most)
            numbers.update((one.name, number) for one in stages)
            after = f"afterok:{number}"
        _record(folder, SubmittedRecord(numbers, digest_of(job), cluster.identity, time.time(), runner))
    except OSError as e:
        _undo(job, folder)
        raise Refused(f"{e.strerror or e}: {e.filename or folder}") from None
    except ReportedError:
        _undo(job, folder)
        raise
    return Outcome(numbers, note=note)


def _needed(job: JobSpec, folder: Path, addresses: Mapping[str, str]) -> list[StageSpec]:
    """The stages of a job. Fetching takes a node, and is left out if all is there."""
    others = [one for one in job.stages if one.name != "prepare"]
    if len(others) < len(job.stages):
        from ..prepare import main as prepare

        try:
            prepare.check(folder, job, job.variables, addresses)
        except prepare.NotFetched:
            return list(job.stages)
    return others


def _complete(
    cluster: Cluster, job: JobSpec, folder: Path, made: SubmittedRecord
) -> tuple[Mapping[str, str], list[str]]:
    """Submit again what Slurm has lost, and what comes after it. Returns the numbers, and the stages that were submitted again.

    Raises:
        Later: Slurm does not answer, or not accept it again.
    """
    numbers, again, after = dict(made.numbers), list[str](), ""
    rows = slurm.rows(numbers=numbers.values(), ended=True)
    for stages in slurm.batches([one for one in job.stages if one.name in numbers]):
        last = stages[-1].name
        how = LOST if again else stand(folder, job.id, numbers, last, rows, job.array)
        if how == OVER or records.is_cancelled(folder):
            break
        if how == LOST:
            slurm.cancel(f"{job.id}:{last}")
            for one in stages:
                _forget(folder, one.name)
            most, _ = longest(cluster, job)
            try:
                number = _send(job, folder, made.runner, stages, after, most)
            except Refused as e:
                raise Later(f"Slurm has lost {last} of {job.id}, and did not accept it again: {e}") from None
            again += [one.name for one in stages]
            numbers.update((one.name, number) for one in stages)
        # Slurm may have forgotten one that has completed
        after = "" if how == COMPLETED else f"afterok:{numbers[last]}"
    if again:
        layout.write_variables(folder, job)
        _record(folder, dataclasses.replace(made, numbers=numbers))
    return numbers, again


def _forget(folder: Path, stage: str) -> None:
    """Delete what a lost stage has recorded: the next one may get the same number. What has compiled stays compiled."""
    state = records.state(folder, stage)
    if not (stage == "precompile" and state and state.completed):
        (folder / "state" / f"{stage}.json").unlink(missing_ok=True)


def _send(job: JobSpec, folder: Path, runner: str, stages: Sequence[StageSpec], after: str, most: float | None) -> str:
    """Submit the Slurm job of these stages. Returns its number. Arguments as of `slurm.sbatch_options`.

    Raises:
        Refused: Slurm refuses it.
        Later: Slurm does not answer.
    """
    for one in stages:
        if not (job.array and one.name == "train"):
            (folder / "logs" / f"{one.name}.log").touch()  # NFS caches for half a minute that a file does not exist
    words = slurm.sbatch_options(job, stages, folder, after=after, most=most)
    try:
        printed = slurm.run("sbatch", "--parsable", *words, text=slurm.batch_script(runner, folder, stages))
    except Refused as e:
        # the controller crashed, forgot what this one waits for, and gave its number to this one
        if after and "Job dependency problem" in str(e):
            raise Later(str(e)) from None
        raise
    except Later as e:
        if _FULL.search(str(e)):
            raise Later(f"{e}. Slurm's queue is full: wait until jobs have ended, or raise MaxJobCount") from None
        raise
    number = printed.strip().partition(";")[0]
    if not number.isdigit():
        raise Later(f"sbatch printed {number[:200]!r}, and no number")
    return number


def _record(folder: Path, made: SubmittedRecord) -> None:
    files.write(folder / "submitted.json", json.dumps(dataclasses.asdict(made)).encode())  # in the order of its stages


def _undo(job: JobSpec, folder: Path) -> None:
    """Raises Later if Slurm does not answer: then the folder stays, as the record of what the next request undoes."""
    slurm.cancel(*(f"{job.id}:{stage}" for stage in slurm.STAGES))
    layout.remove(folder)


@contextlib.contextmanager
def _lock(cluster: Cluster, id: str) -> Iterator[None]:
    """Allow one submission of an id at a time, also from two clients at once."""
    name = hashlib.sha256(id.encode()).hexdigest()[:2]
    with (cluster.jobs / ".locks" / name).open("w") as lock:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Later(f"another submission of {id} is still running. Try again in a minute") from None
                time.sleep(0.05)
        yield


@contextlib.contextmanager
def _finishing() -> Iterator[list[int]]:
    """A job that has begun is submitted whole, or undone, though a signal is to end this program; the list then has the signal."""
    signals: list[int] = []
    before = {one: signal.signal(one, lambda number, _: signals.append(number)) for one in _SIGNALS}
    try:
        yield signals
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# --- what is checked before a job costs nodes -------------------------------------------------------------------------------------------


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
        raise Refused(f"{layout.user()} may not write to {cluster.trn}. An administrator can make it theirs (chown)")


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
    user = layout.user()
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
    stages = slurm.batches(job.stages)[-1]
    own, wanted = stages[-1].seconds, slurm.time_limit(stages)
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
    after = f" after {slurm.clock(rest)}" if rest else ""
    return (
        most,
        f"{name} allows {slurm.clock(int(most))}: compiling counts in the time limit of {slurm.clock(own)}{after}",
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
    array, number = layout.array_of(folder), record.numbers["train"]
    if member and member not in map(str, array_indices(array) if array else ()):
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


# --- the standing of a Slurm job, by its row and the records of its stages ---------------------------------------------------------------

ACTIVE, COMPLETED, OVER, LOST = "active", "completed", "over", "lost"
"""OVER: it has recorded that it failed or was stopped, or Slurm reports that it was stopped. LOST: it has recorded no end, and Slurm does not know it,
reports that it failed, or that it cannot start after the one before it."""
_FAILED = ("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY")
_STOPPED = ("CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT")


def judge(row: Row | None, state: State | None) -> str:
    """Return the standing of a Slurm job, by Slurm's row and its own record; either may be missing."""
    ended = state is not None and state.state == records.ENDED
    if row is None or row.state in _FAILED:
        how = OVER if state is not None and ended and state.why != records.LOST else LOST
    elif row.state == "COMPLETED":
        how = COMPLETED
    elif row.state in _STOPPED:  # if the one before it is not over, its controller had crashed
        how = LOST if row.reason == "DependencyNeverSatisfied" else OVER
    else:
        how = ACTIVE
    if how == OVER and state is not None and state.completed:
        return COMPLETED  # the controller had crashed, forgotten that, and started it again
    return how


def judge_array(rows: Sequence[Row], states: Collection[State | None]) -> str:
    """Return the standing of an array, by Slurm's rows and the recorded states of its members. An array is not submitted again once a member has
    begun."""
    if any(judge(row, None) == ACTIVE for row in rows):
        return ACTIVE
    if not any(states):
        return LOST
    return COMPLETED if all(one is not None and one.completed for one in states) else OVER


def stand(folder: Path, id: str, numbers: Mapping[str, str], stage: str, rows: Sequence[Row], array: str = "") -> str:
    """Return the standing of the Slurm job that carries out a stage.

    Args:
        numbers: of each stage of the job.
        rows: Slurm's, of any jobs, also of those that have ended.
        array: the job's.
    """
    stages = slurm.stages_with(numbers, stage)
    own = [row for row in rows if row.of(id, stages[-1], numbers[stage])]
    places = [folder / str(index) for index in array_indices(array)] if array and stage == "train" else [folder]

    def now() -> str:
        states = [records.current(place, stages, numbers[stage])[1] for place in places]
        return judge_array(own, states) if array and stage == "train" else judge(own[-1] if own else None, states[0])

    if (how := now()) == LOST:  # it may have ended a moment ago
        files.refresh(folder, *(place / "state" for place in places))
        how = now()
    return how
