"""An array of jobs: the status of its members as one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainium_cdk.client.jobs.kubernetes import names, status
from trainium_cdk.client.jobs.kubernetes.status import JobObjects, Object
from trainium_cdk.client.jobs.status import JobStatus, Stage, of_members
from trainium_cdk.runner import arrays

_DELETED = "its JobSet was deleted: by someone, or 14 days after its end"


def grouped(rows: Iterable[Object]) -> dict[str, list[Object]]:
    """The JobSets by what they were submitted as, in their order: a job, or the members of an array."""
    groups: dict[str, list[Object]] = {}
    for row in rows:
        groups.setdefault(names.submission(row), []).append(row)
    return groups


def of(rows: Sequence[Object], seen: Iterable[JobObjects]) -> JobStatus:
    """An array.

    Args:
        rows: its members' metadata with `columns` (see `Api.table`), at least one.
        seen: the status of some members; the others have the state of their row.
    """
    detailed = {one.job["metadata"]["name"]: status.status(one) for one in seen}
    found = {
        _index(row): replace(
            _member(row, detailed.get(row["metadata"]["name"])), values=status.described(row)["values"]
        )
        for row in rows
    }
    first = min(rows, key=lambda row: int(_index(row)))
    one = detailed.get(first["metadata"]["name"]) or status.of(first, ())
    for index in _indices(first):
        found.setdefault(index, Stage(index, "", "UNKNOWN", _DELETED))
    members = tuple(found[index] for index in sorted(found, key=int))
    name, directory = names.array(first), one.directory.removesuffix(f"/{_index(first)}")
    return replace(
        one,
        id=name,
        directory=directory,
        checkpoints=one.checkpoints.replace(one.directory, directory, 1),
        stages=(*_prepare(first, rows, detailed), of_members(name, members)),
        members=members,
    )


def _indices(row: Object) -> list[str]:
    job = status.described(row).get("job")
    array = job.get("array") if isinstance(job, dict) else None  # its description may have been edited
    if not isinstance(array, str) or not re.fullmatch(arrays.PATTERN, array) or arrays.problem(array):
        return []
    return [str(index) for index in arrays.indices(array)]


def _index(row: Object) -> str:
    index = str(row["metadata"]["labels"].get(names.MEMBER_LABEL, ""))
    return index if index.isdecimal() else "0"


def _member(row: Object, found: JobStatus | None) -> Stage:
    if found is None:
        ended = str(row["columns"]["TerminalState"] or "").upper()
        return Stage(_index(row), row["metadata"]["name"], ended or ("PENDING" if waits(row) else "RUNNING"))
    now = found.stages[-1] if found.current.name == names.PREPARE else found.current
    reason = now.reason if now.name == names.TRAIN else f"{now.name}: {now.reason}".removesuffix(": ")
    return replace(now, name=_index(row), number=row["metadata"]["name"], reason=reason)


def _prepare(first: Object, rows: Sequence[Object], detailed: Mapping[str, JobStatus]) -> list[Stage]:
    """The stage that all members share, if they have one: as a member that waits for it tells, else it has completed."""
    if names.PREPARE not in status.described(first)["stages"]:
        return []
    number = names.prepare_job(names.array(first))
    known = [found.stages[0] for row in rows if (found := detailed.get(row["metadata"]["name"]))]
    # a member that was cancelled while it waited keeps its label
    labels = [row["metadata"].get("labels") or {} for row in rows if waits(row)]
    waiting = any(one.get(names.AFTER_LABEL) == number for one in labels)
    state = "PENDING" if waiting else "COMPLETED"
    return [
        next((s for s in known if s.state != "COMPLETED"), known[0] if known else Stage(names.PREPARE, number, state))
    ]


def waits(row: Object) -> bool:
    return not row["columns"]["TerminalState"] and str(row["columns"]["Suspended"]).lower() == "true"
