"""Jobs as the cluster's API describes them, in a number of requests that does not grow with the number of jobs; and arrays, the status of their members
as one."""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from trainium_cdk.client.jobs.kubernetes import parts, reasons, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.kubernetes.reasons import Waits
from trainium_cdk.client.jobs.kubernetes.status import JobObjects
from trainium_cdk.client.jobs.status import JobStatus, Stage, of_members
from trainium_cdk.description.outputs import GROUP_LABEL, EksCluster
from trainium_cdk.errors import ApiError
from trainium_cdk.runner.spec import ARRAY_PATTERN, array_indices, array_problem

_OURS = f"app.kubernetes.io/managed-by={parts.MANAGED_BY}"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_PENDING, _ADMITTED = "status.admission.clusterQueue=", "status.admission.clusterQueue!="
_RECENT = 900
"""Seconds; a Job's controller tries at least every 10 minutes to create its pods."""
_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
_REFUSED = ("FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed")
"""Reasons of a warning about a Job or JobSet (JobSet 0.12.0, pkg/constants; Kubernetes' Job controller)."""
_NAMED = 200
"""Most jobs that one request names."""


_DELETED = "its JobSet was deleted: by someone, or 14 days after its end"


class JobSource(Protocol):
    """The part of the backend that logs, shells and TensorBoard use."""

    cluster: EksCluster
    sleep: Callable[[float], None]
    interval: float

    @property
    def api(self) -> Api: ...

    def seen(self, id: str, *, any_member: bool = False) -> JobObjects: ...

    def status(self, id: str) -> JobStatus: ...


def list_jobs(
    api: Api,
    limit: int,
    devices: Mapping[str, int],
    everything: Sequence[Object],
    places: Mapping[str, Waits] | None = None,
) -> tuple[JobStatus, ...]:
    """The jobs and arrays that run, newest first; those that wait, in the order of their queue; those that have ended, newest first.

    Args:
        devices: of one node, by node group.
        everything: see `rows`.
        places: see `waiting`. Default: they are read if a job waits.
    """
    if places is None:
        places = waiting(devices, Workloads(api)) if any(waits(row) for row in everything) else {}

    def order(row: Object) -> tuple[int, int]:
        if not waits(row):
            return (3 if row["columns"]["TerminalState"] else 0), 0
        return (2 if parts.AFTER_LABEL in row["metadata"]["labels"] else 1), places.get(
            row["metadata"]["uid"], Waits()
        ).position

    groups = sorted(grouped(everything).values(), key=lambda group: min(map(order, group)))[:limit]
    needing = _of(api, [row for group in groups for row in _needing_details(group)])
    found = read_jobs(api, needing, devices, places, completed=False)
    seen: dict[str, list[JobObjects]] = {}
    for one in found:
        seen.setdefault(parts.submission(one.job), []).append(one)
    made, warnings = [], functools.cache(functools.partial(recent_warnings, api))
    for group in groups:
        name = parts.submission(group[0])
        if parts.array(group[0]):
            made.append(array_status(group, seen.get(name, [])))
        else:
            made += [status.status(warned(api, one, warnings)) for one in seen.get(name, [])]
    return tuple(made)


def _needing_details(group: Sequence[Object]) -> Sequence[Object]:
    """List the rows that do not tell enough: of an array, those that failed, and one that waits for another job."""
    if not parts.array(group[0]):
        return group
    failed = [row for row in group if row["columns"]["TerminalState"] == "Failed"]
    after = [row for row in group if waits(row) and parts.AFTER_LABEL in row["metadata"]["labels"]]
    return failed[:_NAMED] + after[:1]


def active(api: Api) -> tuple[JobStatus, ...]:
    """The jobs and arrays that run or wait, without what their pods report."""
    found = []
    for name, group in grouped(rows(api)).items():
        if parts.array(group[0]):
            found.append(array_status(group, []))
        else:
            state = "PENDING" if waits(group[0]) else "RUNNING"
            found.append(status.of(group[0], [Stage(parts.TRAIN, name, group[0]["columns"]["TerminalState"] or state)]))
    return tuple(job for job in found if not job.done)


def array(api: Api, name: str) -> list[Object]:
    """The members of an array, as `rows`; empty if there is none."""
    return rows(api, f"{_OURS},{parts.ARRAY_LABEL}={name}")


def of_array(api: Api, found: Sequence[Object], devices: Mapping[str, int]) -> list[JobObjects]:
    """Read the objects of an array's members: 200 at most, uncompleted ones first."""
    first = sorted(found, key=lambda row: row["columns"]["TerminalState"] == "Completed")
    return read_jobs(api, _of(api, first[:_NAMED]), devices)


def _of(api: Api, chosen: Sequence[Object]) -> list[Object]:
    """The JobSets of rows, in their order."""
    metadata = [row["metadata"] for row in chosen]
    jobs = {
        job["metadata"]["uid"]: job for job in _named(api, "JobSet", parts.JOB_LABEL, [m["name"] for m in metadata])
    }
    return [jobs[m["uid"]] for m in metadata if m["uid"] in jobs]


def read_jobs(
    api: Api,
    jobs: Sequence[Object],
    devices: Mapping[str, int],
    places: Mapping[str, Waits] | None = None,
    *,
    completed: bool = True,
) -> list[JobObjects]:
    """Read the objects of each job: the batch Job of `prepare`, its pods, and while it waits, Kueue's Workload and the job before it.

    Args:
        devices: of one node, by node group.
        places: see `waiting`. Default: they are read if a job waits.
        completed: whether the pods of completed jobs are needed, too.
    """
    wanted = [job for job in jobs if completed or not parts.condition(job, "Completed")]
    called = list(dict.fromkeys(name for job in wanted for name in (job["metadata"]["name"], parts.submission(job))))
    batch = _named(api, "BatchJob", parts.JOB_LABEL, called)
    pods: dict[str, list[Object]] = {}
    for pod in _named(api, "Pod", parts.JOB_LABEL, called):
        for uid in parts.owners(pod):
            pods.setdefault(uid, []).append(pod)
    waits = [j["metadata"]["uid"] for j in jobs if not status.ended(j) and j["spec"].get("suspend")]
    workloads = {uid: w for w in _named(api, "Workload", _JOB_UID, waits) for uid in parts.owners(w)}
    before = _before(api, {other for job in jobs if status.waits_for(job) and (other := status.after(job))})
    if places is None:
        places = waiting(devices, Workloads(api)) if workloads else {}
    ran = _ran(api) if workloads else None
    found = []
    for job in jobs:
        uid = job["metadata"]["uid"]
        mine = {b["metadata"]["name"]: b for b in batch if uid in parts.owners(b)}
        own = [pod for b in mine.values() for pod in pods.get(b["metadata"]["uid"], [])]
        prepare = mine.get(parts.prepare_job(parts.submission(job)))
        found.append(
            JobObjects(
                job, own, prepare, before.get(status.after(job), ()), workloads.get(uid), places.get(uid, Waits()), ran
            )
        )
    return found


def pod(api: Api, job: Mapping[str, str], task: str, index: int) -> Object | None:
    """A pod of a job by its number: the newest, whose owners prove that it is this job's.

    Args:
        job: `name` and `uid` of the JobSet; with `prepare`, `submission`, too.
    """
    called = job.get("submission", job["name"]) if task == parts.PREPARE else job["name"]
    number = f",{parts.INDEX_LABEL}={index}" if task == parts.TRAIN else ""
    found = api.list("Pod", labels=f"{parts.JOB_LABEL}={called},{parts.TASK_LABEL}={task}{number}")
    name = (parts.train_job if task == parts.TRAIN else parts.prepare_job)(called)
    batch = api.find("BatchJob", name) if found else None
    if batch is None or job["uid"] not in parts.owners(batch):
        return None
    mine = [one for one in found if batch["metadata"]["uid"] in parts.owners(one)]
    return max(mine, key=lambda one: str(one["metadata"].get("creationTimestamp")), default=None)


def on_nodes(api: Api, seen: JobObjects) -> JobObjects:
    """Add the job's nodes that do not respond or have a broken device. It is unchanged if the caller may not read nodes."""
    nodes = {pod["spec"].get("nodeName") for pod in seen.pods if status.alive([pod])} - {None}
    group = seen.job["metadata"].get("annotations", {}).get(parts.QUEUE, "")
    rows = list[Object]()
    with contextlib.suppress(ApiError):
        rows = api.table("Node", labels=f"{GROUP_LABEL}={group}") if nodes else []
    mine = {row["metadata"]["name"]: row for row in rows if row["metadata"]["name"] in nodes}
    lost = sorted(name for name, row in mine.items() if "NotReady" in str(row["columns"]["Status"]))
    notes = {name: row["metadata"].get("annotations") or {} for name, row in mine.items()}
    broken = {name: str(one[parts.BROKEN]) for name, one in notes.items() if parts.BROKEN in one}
    return replace(seen, lost=lost, broken=broken)


def warned(api: Api, seen: JobObjects, warnings: Callable[[], Sequence[Object]] | None = None) -> JobObjects:
    """Add Kubernetes' warnings to a job that has its turn and has pods that are not created (a quota of the namespace, a webhook that refuses them or
    does not answer), or do not start (a volume, a network, an image that they do not get). It is unchanged if the caller may not read events. Default
    for `warnings`: they are read."""
    name, waits, job = parts.submission(seen.job), status.waits_for(seen.job), seen.job["metadata"]["name"]
    task, batch, count = parts.TRAIN, parts.train_job(job), status.described(seen.job)["nodes"]
    if waits:
        task, batch, count = parts.PREPARE, parts.prepare_job(name), int(waits == parts.prepare_job(name))
    pods = [pod for pod in seen.pods if status.task(pod) == task]
    missing, idle = len(pods) < count, {pod["metadata"]["uid"] for pod in pods if status.starts(pod)}
    stands = status.ended(seen.job) or (seen.job["spec"].get("suspend") and not waits)
    if stands or not (missing or idle):
        return seen
    makers = {("Job", batch), *([] if waits else [("JobSet", job)])}
    not_made, not_started = list[tuple[int, str]](), list[tuple[int, str]]()
    for event in warnings() if warnings else recent_warnings(api):
        about, at = event["involvedObject"], _last(event)
        if missing and (about.get("kind"), about.get("name")) in makers:
            not_made.append((at, _cause(event)))
        elif about.get("uid") in idle:
            not_started.append((at, f"{event.get('reason')}: {event_text(event)}"))
    return replace(seen, refused=max(not_made, default=(0, ""))[1], stuck=max(not_started, default=(0, ""))[1])


def recent_warnings(api: Api) -> list[Object]:
    """List the namespace's warnings of the last 15 minutes; empty if the caller may not read them."""
    with contextlib.suppress(ApiError):
        return [e for e in api.list("Event", fields="type=Warning") if time.time() - _last(e) < _RECENT]
    return []


def refusals(api: Api) -> dict[str, str]:
    """Describe why pods cannot be created, by the name of a JobSet, or of its own Job. A JobSet whose Job was created after the refusal has none: Kueue's
    webhook may not know a new JobSet for a moment."""
    events = sorted((e for e in recent_warnings(api) if e.get("reason") in _REFUSED), key=_last)
    jobs = {row["metadata"]["uid"]: row["metadata"] for row in (api.table("BatchJob") if events else [])}
    about: list[Object] = [jobs.get(str(e["involvedObject"].get("uid"))) or e["involvedObject"] for e in events]
    owners = [str((one.get("labels") or {}).get(_SET_NAME) or one.get("name")) for one in about]
    made = {
        (one.get("labels") or {}).get(_SET_NAME): parts.seconds(one.get("creationTimestamp") or "") or 0
        for one in jobs.values()
    }
    found = {
        name: e
        for name, e in zip(owners, events, strict=True)
        if _last(e) > made.get(name, 0) or e["involvedObject"]["kind"] != "JobSet"
    }
    return {name: f"its pods cannot be created: {_cause(e)}" for name, e in found.items()}


def event_text(event: Object) -> str:
    """Return an event's message, without client-go's prefix of joined events (record/events_cache.go)."""
    return str(event.get("message") or "").removeprefix("(combined from similar events): ")


def _cause(event: Object) -> str:
    """Return the message of an event, without the words of Kubernetes before the cause."""
    return event_text(event).rpartition("Error creating: ")[2]


def _last(event: Object) -> int:
    """Return the time at which an event was last seen, in seconds since 1970: its source decides which field has it."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((at for text in times if text and (at := parts.seconds(text)) is not None), 0)


class Workloads:
    """Kueue's Workloads that have not finished, in two requests.

    Attributes:
        without: those without nodes.
        holders: rows of those that have or get some.
    """

    def __init__(self, api: Api) -> None:
        found = api.list("Workload", fields=_PENDING, page=0, without=["podSets"])
        self.api, self.without = api, [one for one in found if not parts.condition(one, "Finished")]
        rows = api.table("Workload", fields=_ADMITTED)
        self.holders = [row for row in rows if row["columns"].get("Finished") != "True"]


def waiting(devices: Mapping[str, int], workloads: Workloads) -> dict[str, Waits]:
    """Return the position of each waiting Workload, by the uid of its job. Kueue's order: priority, then age (`queueOrderingFunc`)."""
    api, everything = workloads.api, workloads.without
    apart = {uid: Waits(devices=devices, workload=w) for w in everything if reasons.aside(w) for uid in parts.owners(w)}
    found = [w for w in everything if _pending(w)]
    found.sort(key=lambda w: (-int(w["spec"].get("priority") or 0), _since(w), w["metadata"]["name"]))
    if not found:
        return apart
    local, queues = api.list("LocalQueue"), list[Object]()
    with contextlib.suppress(ApiError):  # a cluster's own user may not be allowed to
        queues = api.list("ClusterQueue")
    return apart | reasons.waiting(found, _holders(workloads), local, queues, devices)


def _holders(workloads: Workloads) -> list[Object]:
    """The Workloads that have nodes."""
    api, uids = workloads.api, [uid for row in workloads.holders for uid in parts.owners(row)]
    return [w for w in _named(api, "Workload", _JOB_UID, uids) if w.get("status", {}).get("admission")]


def _ran(api: Api) -> int | None:
    """Return the time of the last run of the function that starts nodes; None if it is not known."""
    with contextlib.suppress(ApiError):
        return parts.seconds(api.get("Lease", parts.LEASE)["spec"].get("renewTime"))
    return None


def _pending(workload: Object) -> bool:
    ended = parts.condition(workload, "Finished") or parts.condition(workload, "QuotaReserved")
    return not ended and workload["spec"].get("active") is not False


def _since(workload: Object) -> str:
    """Return the time at which a Workload began to wait: again after AWS did not have its nodes."""
    evicted = parts.condition(workload, "Evicted")
    again = evicted and evicted["reason"] == "AdmissionCheck"
    return str(evicted["lastTransitionTime"] if evicted and again else workload["metadata"]["creationTimestamp"])


def _before(api: Api, others: set[str]) -> dict[str, list[Object]]:
    """Read the jobs that other jobs come after, by name: the JobSet, or the members of the array."""
    found = {job["metadata"]["name"]: [job] for job in _named(api, "JobSet", parts.JOB_LABEL, sorted(others))}
    for job in _named(api, "JobSet", parts.ARRAY_LABEL, sorted(others - found.keys())):
        found.setdefault(parts.array(job), []).append(job)
    return found


def rows(api: Api, labels: str = _OURS) -> list[Object]:
    """The metadata of the JobSets of `trn`, with `columns` (see `Api.table`), newest first."""
    found = [row for row in api.table("JobSet", labels=labels) if parts.is_job(row)]
    return sorted(found, key=lambda r: (r["metadata"]["creationTimestamp"], r["metadata"]["name"]), reverse=True)


def _named(api: Api, kind: str, label: str, values: Sequence[str]) -> list[Object]:
    """The objects with one of these values of a label."""
    if len(values) > _NAMED:
        return [o for o in api.list(kind) if (o["metadata"].get("labels") or {}).get(label) in set(values)]
    return api.list(kind, labels=f"{label} in ({','.join(values)})") if values else []


def grouped(rows: Iterable[Object]) -> dict[str, list[Object]]:
    """The JobSets by what they were submitted as, in their order: a job, or the members of an array."""
    groups: dict[str, list[Object]] = {}
    for row in rows:
        groups.setdefault(parts.submission(row), []).append(row)
    return groups


def array_status(rows: Sequence[Object], seen: Iterable[JobObjects]) -> JobStatus:
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
    name, directory = parts.array(first), one.directory.removesuffix(f"/{_index(first)}")
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
    if not isinstance(array, str) or not re.fullmatch(ARRAY_PATTERN, array) or array_problem(array):
        return []
    return [str(index) for index in array_indices(array)]


def _index(row: Object) -> str:
    index = str(row["metadata"]["labels"].get(parts.MEMBER_LABEL, ""))
    return index if index.isdecimal() else "0"


def _member(row: Object, found: JobStatus | None) -> Stage:
    if found is None:
        ended = str(row["columns"]["TerminalState"] or "").upper()
        return Stage(_index(row), row["metadata"]["name"], ended or ("PENDING" if waits(row) else "RUNNING"))
    now = found.stages[-1] if found.current.name == parts.PREPARE else found.current
    reason = now.reason if now.name == parts.TRAIN else f"{now.name}: {now.reason}".removesuffix(": ")
    return replace(now, name=_index(row), number=row["metadata"]["name"], reason=reason)


def _prepare(first: Object, rows: Sequence[Object], detailed: Mapping[str, JobStatus]) -> list[Stage]:
    """The stage that all members share, if they have one: as a member that waits for it tells, else it has completed."""
    if parts.PREPARE not in status.described(first)["stages"]:
        return []
    number = parts.prepare_job(parts.array(first))
    known = [found.stages[0] for row in rows if (found := detailed.get(row["metadata"]["name"]))]
    # a member that was cancelled while it waited keeps its label
    labels = [row["metadata"].get("labels") or {} for row in rows if waits(row)]
    waiting = any(one.get(parts.AFTER_LABEL) == number for one in labels)
    state = "PENDING" if waiting else "COMPLETED"
    return [
        next((s for s in known if s.state != "COMPLETED"), known[0] if known else Stage(parts.PREPARE, number, state))
    ]


def waits(row: Object) -> bool:
    return not row["columns"]["TerminalState"] and str(row["columns"]["Suspended"]).lower() == "true"
