"""Requests about jobs: lists, a status, logs, settings, and to cancel one."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from .. import blocks, files, layout, records, slurm
from ..errors import Later, NoMember, Refused, Theirs, Unknown
from ..records import SubmittedRecord, one_line
from ..requests import Active, Cancel, Cluster, History, JobSettings, ListJobs, Log, LogPiece, ReadLog, Report, Status
from ..slurm import Row
from ..spec import Packed, SpecError, StageSpec, array_indices
from ..status import ACTIVE, JobStatus, last_begun, shortened
from . import jobs

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
    from ..readers.log import kept, progress  # slow, and for a job alone

    end = read_end(cluster, job.id, "train", _END)
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
        raise Theirs(f"{id} is a job of {other.user}, and you are {layout.user()}: only {other.user} can {what}")
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


def node_of(cluster: Cluster, job: JobStatus, rank: int) -> int:
    """The node of a rank. Ranks are in the order of the nodes.

    Raises:
        Refused: there is no such rank, or the job's record is damaged.
    """
    try:
        made = layout.read_job(cluster.jobs / layout.split(job.id)[0])
    except SpecError as e:
        raise Refused(f"the record of {job.id}, job.json, is damaged: {e}. Give the node instead of the rank") from None
    last = made.stages[-1] if made.stages else StageSpec("train")
    each = last.ranks(made.environment.cores)
    if not 0 <= rank < job.nodes * each:
        raise Refused(f"{job.id} has ranks 0 to {job.nodes * each - 1}, not {rank}. Choose one of them")
    return rank // each


def settings(cluster: Cluster, given: JobSettings) -> Mapping[str, Any]:
    """See `requests.JobSettings`."""
    record = files.read_json(cluster.jobs / layout.split(given.id)[0] / "job.json")
    found = record.get("settings") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def read_piece(cluster: Cluster, given: ReadLog) -> Log:
    """See `requests.Log`.

    Raises:
        Refused: it is not a regular file.
    """
    status = own_job(cluster, given.id, "read its log")
    stage = given.stage or last_begun(status)
    if status.members and stage == "train":
        return Log(status, stage, members=tuple(_of_members(cluster, status, given)))
    node = None if given.rank is None else node_of(cluster, status, given.rank)
    piece = LogPiece(offset=given.offset)
    with contextlib.suppress(FileNotFoundError):
        path = path_of(cluster, given.id, stage, given.node if node is None else node)
        piece = _read_log(path, f"the log of {given.id}'s {stage}", given.offset, given.most, given.tail)
    return Log(status, stage, piece, node=node)


def report(cluster: Cluster, given: Report) -> History:
    """See `requests.History`."""
    status, left = own_job(cluster, given.id, "read its log"), given.most
    names = [] if status.members else [stage.name for stage in status.stages if stage.name != "prepare"]
    logs = {name: LogPiece() for name in names}
    for name in names:
        try:
            logs[name] = _read_log(path_of(cluster, given.id, name, None), "", 0, left, None)
            left -= min(left, logs[name].size)
        except FileNotFoundError:  # it has not begun
            continue
        except Refused:
            del logs[name]
    return History(status, settings(cluster, JobSettings(given.id)), logs)


def _of_members(cluster: Cluster, status: JobStatus, given: ReadLog) -> Iterator[LogPiece]:
    """Pieces of the logs of an array's members, in their order. Each has the same share of `most`, and of what others leave."""
    wanted = [m.name for m in status.members if not given.members or m.name in given.members]
    left = given.most
    for at, index in enumerate(wanted):
        begin, most = given.members.get(index, 0), left // (len(wanted) - at)
        with contextlib.suppress(FileNotFoundError, Refused):  # it has not begun, or has replaced it
            piece = _read_log(path_of(cluster, f"{status.id}/{index}", "train", None), "", begin, most, given.tail)
            left -= min(most, max(0, piece.size - piece.offset))
            if piece.data or piece.offset < begin:
                yield replace(piece, member=index)


def active(cluster: Cluster, _: Active) -> list[JobStatus]:
    """The jobs of all users that run or wait, from Slurm itself: neither a job's files nor the number of jobs can hide one."""
    rows = slurm.everybody()
    return jobs.of_rows(rows, cluster, jobs.with_rows(rows))


def _newest(cluster: Cluster, limit: int) -> list[JobStatus]:
    found = jobs.submissions(cluster, layout.newest_jobs(cluster, limit))
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
    return jobs.ask(cluster, found) if start_requeued(cluster.jobs, asked.rows, claims) else asked


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


# --- jobs that Slurm has put back into its queue, and would leave there -----------------------------------------------------------------


def start_requeued(jobs: Path, rows: Iterable[Row], claims: Collection[tuple[str, str, str]]) -> bool:
    """Start those that have left a capacity block, once the next one has begun, and those that Slurm holds, as their nodes refused them. Returns
    whether there was any: then Slurm's rows are of before.

    Args:
        jobs: the folder of all jobs.
        rows: Slurm's, of whatever jobs.
        claims: the stages that jobs have recorded: (id, stage, number). Members of arrays are left alone.
    """
    any_began = False
    for row in rows:
        if not (row.mine and row.id and not row.index and (row.id, row.stage, row.number) in claims):
            continue
        if (row.state, row.reason) == ("PENDING", "launch failed requeued held"):
            words = ["release", row.number]
        elif (row.state, row.reason) == ("PENDING", "BeginTime") and _may_begin(jobs, row):
            words = ["update", f"JobId={row.number}", "StartTime=now"]
        else:
            continue
        with contextlib.suppress(Refused, Later):
            slurm.run("scontrol", *words)
            any_began = True
    return any_began


def _may_begin(jobs: Path, row: Row) -> bool:
    left = blocks.left(jobs / row.id).count
    return bool(left) and not blocks.waits(jobs, jobs / row.id, row.queue) and not just_ended(row)


def just_ended(row: Row) -> bool:
    """Return whether Slurm ended its last run in the last two seconds, and submitted it anew. In the second of that end a slurmd refuses the job
    ("Job credential revoked"), and Slurm fails it. A start ahead of now would come up to a minute late, and each status would put it off."""
    again = slurm.moment(row.submitted)
    return again is not None and again > time.time() - 2


# --- to cancel: Slurm's jobs are found by their names, so a damaged record, or a deleted folder, does not matter ------------------------

CANCEL_SECONDS = 10
"""For which it waits until Slurm has done it."""


def cancel(cluster: Cluster, given: Cancel) -> JobStatus:
    """Cancel what runs or waits, the last stage first. Returns the job's status, as `status`, once Slurm has done so.

    Raises:
        Unknown: there is no such job.
        NoMember: the array has no such member.
        Theirs: it is another user's.
        Later: Slurm does not answer.
    """
    id, member = layout.split(given.id)
    folder = cluster.jobs / id
    record = records.submitted(folder)
    number = record.numbers.get("train", "") if record else ""
    if member and not (number and member in map(str, array_indices(layout.array_of(folder) or "0"))):
        own_job(cluster, given.id, "cancel it")
        raise NoMember(f"{id} has no member {member}")
    here = record is None or record.cluster in ("", cluster.identity)
    if here and _active(id, number, member):
        _mark(folder, member)
        _stop(id, number, member)
        until = time.monotonic() + CANCEL_SECONDS
        while _active(id, number, member) and time.monotonic() < until:
            time.sleep(0.2)
        if not member:
            layout.forget_variables(folder)
    if not os.path.lexists(folder / "submitted.json"):
        # its folder may have been deleted while it ran: then Slurm has all that is known of it
        rows = [row for row in slurm.rows(names=_names(id), ended=True) if row.id == id]
        if rows:
            return jobs.of_rows(rows, cluster, jobs.with_rows(rows))[0]
    return own_job(cluster, given.id, "cancel it")


def _active(id: str, number: str, member: str) -> list[Row]:
    if not member:
        return [row for row in slurm.rows(names=_names(id)) if row.id == id]
    rows = slurm.rows(numbers=[number], members=True)
    return [row for row in rows if row.index == member and row.of(id, "train", number)]


def _names(id: str) -> list[str]:
    return [f"{id}:{stage}" for stage in slurm.STAGES]


def _mark(folder: Path, member: str) -> None:
    """Record that it was cancelled, which a controller may forget in a crash. A member that has not begun has no folder yet."""
    if not os.path.lexists(folder):
        return
    place = folder / member if member else folder
    place.mkdir(exist_ok=True)
    (place / "cancelled").touch()


def _stop(id: str, number: str, member: str) -> None:
    if not member:
        slurm.cancel(*reversed(_names(id)))
        return
    try:
        # its number was just compared with its name and user; given, too, they would cancel all members that wait (Slurm 22.05)
        slurm.run("scancel", f"{number}_{member}")
    except Refused as e:
        raise Later(str(e)) from None


# --- the files of jobs' logs: a job can write its own, so what is not a regular file is not opened --------------------------------------

_BLOCK, _MOST = 1 << 16, 1 << 24  # bytes that are read at once, and of a log's end in which last lines are looked for


def _read_log(path: Path, name: str, offset: int, most: int, tail: int | None) -> LogPiece:
    """A piece of a log.

    Args:
        name: of the log, as an error has it.
        offset, most, tail: as of `requests.ReadLog`.

    Raises:
        FileNotFoundError: there is none.
        Refused: it is not a regular file.
    """
    with open_log(path, name) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(offset, 0)
        if tail is not None:
            begin = max(begin, last_lines(file, size, tail))
        data = b""
        if begin < size:  # a file system may not take an offset far behind the end
            file.seek(begin)
            data = file.read(max(0, most))
        return LogPiece(size, begin if data else min(begin, size), Packed(data))


def read_end(cluster: Cluster, id: str, stage: str, most: int) -> bytes:
    """The last lines of a log, at most so many bytes; empty if there is none, or it cannot be read. The first line is whole, as it begins with its
    node and worker."""
    with contextlib.suppress(OSError, Refused), open_log(path_of(cluster, id, stage, None), "") as file:
        size = os.fstat(file.fileno()).st_size
        end = _at(file, max(0, size - most), size)
        return end[end.find(b"\n") + 1 :] if size > most else end
    return b""


def last_lines(file: BinaryIO, size: int, count: int) -> int:
    """Return the offset at which the last lines of a file begin. A line without an end is one, too."""
    if count <= 0:
        return size
    at, least = size, max(0, size - _MOST)
    if size and _at(file, size - 1, size) == b"\n":
        at -= 1  # the end of the last line
    while at > least:
        first = max(least, at - _BLOCK)
        for found in _backwards(_at(file, first, at)):
            count -= 1
            if count == 0:
                return first + found + 1
        at = first
    return least


def _backwards(block: bytes) -> Iterator[int]:
    at = block.rfind(b"\n")
    while at >= 0:
        yield at
        at = block.rfind(b"\n", 0, at)


def _at(file: BinaryIO, first: int, last: int) -> bytes:
    file.seek(first)
    return file.read(last - first)


def path_of(cluster: Cluster, id: str, stage: str, node: int | None) -> Path:
    if not re.fullmatch(r"[a-z]{1,20}", stage):
        raise Refused(f"{id} has no stage {stage[:40]!r}")
    folder = cluster.jobs / id / "logs"
    files.refresh(folder)
    return folder / (f"{stage}.log" if node is None else f"{stage}.{node}.log")


@contextlib.contextmanager
def open_log(path: Path, name: str) -> Iterator[BinaryIO]:
    """Raises FileNotFoundError: there is none. Refused: it is not a regular file."""
    refused = Refused(f"{name} is not a regular file, and was not opened. The job has replaced it")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:  # a link, or a socket
        raise refused from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused
    with os.fdopen(descriptor, "rb") as file:
        yield file
