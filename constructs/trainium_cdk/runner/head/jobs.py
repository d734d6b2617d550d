"""The status of jobs: from their records, which lie where jobs can write, and from what Slurm knows of them."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import blocks, files, records, slurm
from ..errors import Refused, Unknown
from ..layout import ID, newest_jobs
from ..records import SubmittedRecord
from ..requests import Cluster
from ..spec import ARRAY_PATTERN, MAX_MEMBERS, SpecError, Sweep, array_indices, array_problem, from_json
from ..status import ACTIVE, ENDED_BADLY, JobStatus, Stage, checkpoints_in, of_members, parse_int
from ..work import health
from . import stages
from .stages import Known

_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_WHOLE = re.compile(r".+-[0-9]{8}-[0-9a-f]{6}")
"""An id with a token that `trn` made: no other id begins with it."""
_TOKEN = re.compile(r"-[0-9]{8}-[0-9a-f]{6}$")
_NAMED = 1000
"""The newest jobs, whose first characters are enough."""
_MANY = 2000
"""Most numbers for which Slurm is asked one by one; for more, it is asked for all."""
_DAMAGED = "its record on the cluster (submitted.json) is damaged"


@dataclass(frozen=True)
class Asked:
    """Slurm's data at one moment. `full`: the shared file system, if no block of it is free."""

    rows: tuple[slurm.Row, ...] = ()
    accounts: tuple[slurm.Account, ...] = ()
    down: tuple[slurm.Down, ...] = ()
    blocks: tuple[tuple[str, str], ...] = ()
    full: str = ""
    by_number: Mapping[str, list[slurm.Row]] = field(default_factory=dict)


def named(cluster: Cluster, given: str) -> str:
    """The id of a job, or of a member, which is named by it, by first characters that no other one of the newest 1000 jobs has, or by `latest`.
    As it was given if there is none: another user may have it.

    Raises:
        Refused: several jobs begin like that.
        Unknown: there is no job at all.
    """
    job, slash, member = given.partition("/")
    if not ID.fullmatch(job) or _WHOLE.fullmatch(job) or os.path.lexists(cluster.jobs / job / "submitted.json"):
        return given
    if job == "latest":
        found = newest_jobs(cluster, 1)
        if not found:
            raise Unknown("there are no jobs on this cluster")
    else:
        found = [id for id in newest_jobs(cluster, _NAMED) if id.startswith(job)]
    if len(found) > 1:
        more = ", ..." if len(found) > 5 else ""
        raise Refused(f"{len(found)} jobs begin with {job}: {', '.join(found[:5])}{more}. Give more of the id")
    return f"{found[0]}{slash}{member}" if found else given


def similar(cluster: Cluster, id: str) -> list[str]:
    """The ids of jobs that one may have meant."""
    return similar_ids(id, newest_jobs(cluster, _NAMED))


def similar_ids(id: str, ids: Sequence[str]) -> list[str]:
    """Find ids like another one, newest first. Tokens, which begin with the day, are not compared. If jobs have one name, find the newest."""
    known = {_TOKEN.sub("", one): one for one in reversed(ids)}
    return [known[one] for one in difflib.get_close_matches(_TOKEN.sub("", id), known, n=2)]


def submissions(cluster: Cluster, ids: Iterable[str]) -> dict[str, SubmittedRecord | None]:
    """Read the submission of each of these jobs; None if it is damaged. Without a record there is no job."""
    return {id: _submitted(cluster.jobs / id) for id in ids if os.path.lexists(cluster.jobs / id / "submitted.json")}


def _submitted(job: Path) -> SubmittedRecord | None:
    found = records.submitted(job)
    if found is None:
        return None
    numbers = {name: found.numbers[name] for name in slurm.STAGES if _NUMBER.fullmatch(found.numbers.get(name, ""))}
    return replace(found, numbers=numbers)


def ask(cluster: Cluster, found: Mapping[str, SubmittedRecord | None]) -> Asked:
    """Ask Slurm about these jobs. Ask before you read their folders: a stage that has ended has written its state."""
    ours = [one for one in found.values() if one and one.cluster in ("", cluster.identity)]
    numbers = [number for one in ours for number in one.numbers.values()]
    rows: list[slurm.Row] = []
    if numbers:
        rows = slurm.rows(numbers=numbers if len(numbers) <= _MANY else (), ended=True, members=True, others=True)
    return with_rows(rows)


def with_rows(rows: Iterable[slurm.Row]) -> Asked:
    """Return these rows, and if one of them waits, the nodes that it may wait for."""
    rows, by_number = tuple(rows), dict[str, list[slurm.Row]]()
    for row in rows:
        by_number.setdefault(row.number, []).append(row)
    waits = any(row.state == "PENDING" for row in rows)
    return Asked(
        rows=rows,
        by_number=by_number,
        down=tuple(slurm.down()) if waits else (),
        blocks=tuple(slurm.blocks()) if waits else (),
    )


def describe(cluster: Cluster, id: str, submission: SubmittedRecord | None, asked: Asked) -> JobStatus:
    """The status of a job that has a record."""
    folder = cluster.jobs / id
    files.refresh(folder, folder / "state")
    record = files.read_json(folder / "job.json")
    record = record if isinstance(record, dict) else {}
    shown = record["shown"] if isinstance(record.get("shown"), dict) else {}
    text = record.get("array")
    array = text if isinstance(text, str) and re.fullmatch(ARRAY_PATTERN, text) and not array_problem(text) else ""
    found: list[Stage] = []
    members: tuple[Stage, ...] = ()
    numbers = submission.numbers if submission else {}
    for name, number in numbers.items():
        known = _known(cluster, folder, name, submission, shown, asked)._replace(before=found[-1] if found else None)
        if array and name == "train":
            members = _members(folder, id, number, array, asked, known, _sweep(record))
            found.append(of_members(number, members))
        else:
            found.append(_stage(folder, id, name, numbers, asked, known))
    directory = f"{cluster.shared_dir}/{cluster.folder}/jobs/{id}"
    return JobStatus(
        id=id,
        kind=_text(shown, "kind", "?"),
        queue=_text(shown, "queue", "?"),
        instance_type=_text(shown, "instance_type", "?"),
        nodes=_number(shown, "nodes") or 0,
        global_batch_size=_number(shown, "global_batch_size"),
        stages=tuple(found) or (Stage("train", "", "UNKNOWN", _DAMAGED),),
        directory=directory,
        user=_text(shown, "user"),
        submitted=int(submission.at) if submission and submission.at else None,
        members=members,
        checkpoints=checkpoints_in(directory, shown.get("checkpoints")),
    )


def of_rows(rows: Iterable[slurm.Row], cluster: Cluster, asked: Asked) -> list[JobStatus]:
    """List jobs that are known from Slurm's queue alone, for example other users'. Two users may have jobs of one id."""
    groups: dict[tuple[int, str], list[slurm.Row]] = {}
    for row in rows:
        if ID.fullmatch(row.id):
            groups.setdefault((row.uid, row.id), []).append(row)
    return [_of_rows(id, group, cluster, asked) for (_, id), group in groups.items()]


def _of_rows(id: str, rows: list[slurm.Row], cluster: Cluster, asked: Asked) -> JobStatus:
    found: list[Stage] = []
    last = {row.stage: row for row in rows}
    for name, row in last.items():
        known = Known(before=found[-1] if found else None, row=row, **_of_queue(cluster, row.queue, asked, name))
        found.append(stages.stage(name, row.number, known))
    row = rows[0]
    times = [at for at in (slurm.moment(one.submitted) for one in rows) if at]
    return JobStatus(
        id=id,
        kind="?",
        queue=records.one_line(row.queue),
        instance_type="?",
        nodes=parse_int(row.count) or 0,
        global_batch_size=None,
        stages=tuple(found),
        directory=f"{cluster.shared_dir}/{cluster.folder}/jobs/{id}",
        user=records.one_line(row.user),
        submitted=min(times, default=None),
    )


def _known(
    cluster: Cluster,
    folder: Path,
    name: str,
    submission: SubmittedRecord | None,
    shown: Mapping[str, Any],
    asked: Asked,
) -> Known:
    """Return the facts that all members of a stage share."""
    queue = shown.get("prepare_queue" if name == "prepare" else "queue")
    elsewhere = submission.cluster if submission and submission.cluster not in ("", cluster.identity) else None
    return Known(
        elsewhere=elsewhere,
        cancelled=records.is_cancelled(folder),
        full=asked.full,
        **_of_queue(cluster, queue, asked, name),
    )


def inactive(cluster: Cluster) -> str:
    """Describe why a queue with an inactive partition takes no jobs, and the fix."""
    return (
        "the queue is inactive: ParallelCluster stops a queue (fleet status PROTECTED) after 10 nodes that failed to start. "
        f"Find the reason (trn why {cluster.stack} --region {cluster.region}), fix it, then start the fleet again "
        f"(trn nodes start --stack {cluster.stack} --region {cluster.region})"
    )


def _of_queue(cluster: Cluster, queue: object, asked: Asked, stage: str) -> dict[str, Any]:
    return {
        "inactive": inactive(cluster),
        "down": tuple(d for d in asked.down if d.queue == queue or (stage == "prepare" and queue is None)),
        "blocks": tuple(id for id, nodes in asked.blocks if nodes.startswith(f"{queue}-")),
        "cpu": bool(cluster.cpu_queue) and queue == cluster.cpu_queue,
    }


def _stage(folder: Path, id: str, name: str, numbers: Mapping[str, str], asked: Asked, known: Known) -> Stage:
    """The status of a stage. Slurm's row and accounting tell of one stage of its Slurm job (`records.current`): those before it have completed, and
    those after it wait for it."""
    number, here = numbers[name], known.elsewhere is None
    of_number = slurm.stages_with(numbers, name)
    now, state = records.current(folder, of_number, number)
    rows = asked.by_number.get(number, [])
    row = next((row for row in rows if here and row.of(id, of_number[-1], number)), None)
    if slurm.STAGES.index(name) > slurm.STAGES.index(now):
        before = known.before
        if before is not None and before.state in ACTIVE:
            return Stage(name, number, "PENDING", f"waits for {before.name}")
        return stages.stage(name, number, known)
    if name != now:
        state = records.state(folder, name, number)
        found = stages.stage(name, number, known._replace(state=state))
        began = slurm.moment(row.start) if row else None
        return replace(found, started=began if began and found.ended and began <= found.ended else None)
    known = known._replace(
        row=row,
        state=state,
        account=next(
            (a for a in asked.accounts if here and (a.number, a.name) == (number, f"{id}:{of_number[-1]}")), None
        ),
        anothers=here and bool(rows),
    )
    if row and row.state == "PENDING":
        known = known._replace(next_block=blocks.waits(folder.parent, folder, row.queue))
    found = stages.stage(name, number, known)
    if found.started and known.before and known.before.number == number:  # it began in the middle of its Slurm job
        found = replace(found, started=max(found.started, known.before.ended or 0))
    return _with_failure(found, folder, name, known)


def _with_failure(stage: Stage, folder: Path, name: str, known: Known) -> Stage:
    """Add the first failure to a stage that ended badly; while it trains, its problems."""
    if name == "train" and stage.state == "RUNNING":
        block = blocks.of_nodes(folder.parent, stage.nodes)
        stage = replace(stage, reason=stage.reason or (block.text if block and time.time() < block.ends else ""))
        return replace(stage.with_findings(health.found(folder, name)), stepped=health.stepped(folder, name) or None)
    if stage.state not in ENDED_BADLY or known.state is None:
        return stage
    return replace(stage, failure=records.failure(folder, name))


def _members(
    folder: Path, id: str, number: str, array: str, asked: Asked, known: Known, sweep: Sweep | None
) -> tuple[Stage, ...]:
    """The members of an array, each as a stage whose name is its index."""
    rows = {row.index: row for row in asked.by_number.get(number, ()) if row.of(id, "train", number)}
    found, begun = [], False
    for index in map(str, array_indices(array)):
        state = records.state(folder / index, "train")
        begun = begun or state is not None
        one = known._replace(
            row=rows.get(index) if known.elsewhere is None else None,
            state=state if state and state.number == number else None,
            cancelled=known.cancelled or records.is_cancelled(folder / index),
            blocks=(),
        )
        made = _with_failure(stages.stage(index, f"{number}_{index}", one), folder / index, "train", one)
        found.append(replace(made, values=sweep.of(index)) if sweep else made)
    if not begun and all(member.state == "LOST" for member in found):
        return tuple(found)
    # an array of which a member has begun is not submitted again with its token
    alone = "it alone (--array {}) with a new token"
    return tuple(replace(m, reason=m.reason.replace(stages.SAME, alone.format(m.name))) for m in found)


def _sweep(record: Mapping[str, Any]) -> Sweep | None:
    """The values of an array's members. The record lies where jobs can write."""
    try:
        found = from_json(Sweep, record.get("sweep"), strict=False)
    except (SpecError, RecursionError):
        return None
    rows = (tuple(records.one_line(value) for value in row) for row in found.rows[:MAX_MEMBERS])
    return Sweep(tuple(map(records.one_line, found.names)), tuple(rows))


def _text(shown: Mapping[str, Any], name: str, otherwise: str = "") -> str:
    value = shown.get(name)
    return records.one_line(str(value))[:200] if isinstance(value, (str, int)) and str(value) else otherwise


def _number(shown: Mapping[str, Any], name: str) -> int | None:
    found = parse_int(shown.get(name))
    return found if found is not None and abs(found) < 10**12 else None
