"""Jobs as the cluster's API describes them, in a number of requests that does not grow with the number of jobs."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from trainium_cdk.errors import ApiError
from trainium_cdk.jobs.kubernetes import members, names, status
from trainium_cdk.jobs.kubernetes.api import Api, Object
from trainium_cdk.jobs.kubernetes.members import waits
from trainium_cdk.jobs.kubernetes.status import Seen
from trainium_cdk.jobs.status import JobStatus, Stage
from trainium_cdk.outputs import GROUP_LABEL

_OURS = f"app.kubernetes.io/managed-by={names.MANAGED_BY}"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_PENDING = "status.admission.clusterQueue="
_RECENT = 900
"""Seconds; a Job's controller tries at least every 10 minutes to create its pods."""
_NAMED = 200
"""Most jobs that one request names."""


def listed(api: Api, limit: int) -> tuple[JobStatus, ...]:
    """The jobs and arrays that run, newest first; those that wait, in the order of their queue; those that have ended, newest first."""
    everything = rows(api)
    places = positions(api) if any(waits(row) for row in everything) else {}

    def order(row: Object) -> tuple[int, int]:
        if not waits(row):
            return (3 if row["columns"]["TerminalState"] else 0), 0
        return (2 if names.AFTER_LABEL in row["metadata"]["labels"] else 1), places.get(row["metadata"]["uid"], 0)

    groups = sorted(members.grouped(everything).values(), key=lambda group: min(map(order, group)))[:limit]
    found = at(api, _of(api, [row for group in groups for row in _telling(group)]), places, completed=False)
    seen: dict[str, list[Seen]] = {}
    for one in found:
        seen.setdefault(names.submission(one.job), []).append(one)
    made = []
    for group in groups:
        name = names.submission(group[0])
        if names.array(group[0]):
            made.append(members.of(group, seen.get(name, [])))
        else:
            made += [status.status(one) for one in seen.get(name, [])]
    return tuple(made)


def _telling(group: Sequence[Object]) -> Sequence[Object]:
    """Of an array, the members whose rows do not tell enough: those that failed, and one that waits for another job."""
    if not names.array(group[0]):
        return group
    failed = [row for row in group if row["columns"]["TerminalState"] == "Failed"]
    after = [row for row in group if waits(row) and names.AFTER_LABEL in row["metadata"]["labels"]]
    return failed[:_NAMED] + after[:1]


def active(api: Api) -> tuple[JobStatus, ...]:
    """The jobs and arrays that run or wait, without what their pods report."""
    found = []
    for name, group in members.grouped(rows(api)).items():
        if names.array(group[0]):
            found.append(members.of(group, []))
        else:
            state = "PENDING" if waits(group[0]) else "RUNNING"
            found.append(status.of(group[0], [Stage(names.TRAIN, name, group[0]["columns"]["TerminalState"] or state)]))
    return tuple(job for job in found if not job.done)


def array(api: Api, name: str) -> list[Object]:
    """The members of an array, as `rows`; empty if there is none."""
    return rows(api, f"{_OURS},{names.ARRAY_LABEL}={name}")


def of_array(api: Api, found: Sequence[Object]) -> list[Seen]:
    """What there is of an array's members: of 200 at most, those that have not completed before others."""
    first = sorted(found, key=lambda row: row["columns"]["TerminalState"] == "Completed")
    return at(api, _of(api, first[:_NAMED]))


def _of(api: Api, chosen: Sequence[Object]) -> list[Object]:
    """The JobSets of rows, in their order."""
    metadata = [row["metadata"] for row in chosen]
    jobs = {
        job["metadata"]["uid"]: job for job in _named(api, "JobSet", names.JOB_LABEL, [m["name"] for m in metadata])
    }
    return [jobs[m["uid"]] for m in metadata if m["uid"] in jobs]


def at(
    api: Api, jobs: Sequence[Object], places: Mapping[str, int] | None = None, *, completed: bool = True
) -> list[Seen]:
    """What there is of each job: the batch Job of `prepare`, its pods, and while it waits, Kueue's Workload and the job before it.

    Args:
        places: see `positions`. Default: they are read if a job waits.
        completed: whether the pods of completed jobs are needed, too.
    """
    wanted = [job for job in jobs if completed or not status.condition(job, "Completed")]
    called = list(dict.fromkeys(name for job in wanted for name in (job["metadata"]["name"], names.submission(job))))
    batch = _named(api, "BatchJob", names.JOB_LABEL, called)
    pods: dict[str, list[Object]] = {}
    for pod in _named(api, "Pod", names.JOB_LABEL, called):
        for uid in names.owners(pod):
            pods.setdefault(uid, []).append(pod)
    waits = [j["metadata"]["uid"] for j in jobs if not status.ended(j) and j["spec"].get("suspend")]
    workloads = {uid: w for w in _named(api, "Workload", _JOB_UID, waits) for uid in names.owners(w)}
    before = _before(api, {other for job in jobs if status.waits_for(job) and (other := status.after(job))})
    if places is None:
        places = positions(api) if workloads else {}
    ran = _ran(api) if workloads else None
    found = []
    for job in jobs:
        uid = job["metadata"]["uid"]
        mine = {b["metadata"]["name"]: b for b in batch if uid in names.owners(b)}
        own = [pod for b in mine.values() for pod in pods.get(b["metadata"]["uid"], [])]
        prepare = mine.get(names.prepare_job(names.submission(job)))
        found.append(
            Seen(job, own, prepare, before.get(status.after(job), ()), workloads.get(uid), places.get(uid, 0), ran)
        )
    return found


def pod(api: Api, job: Mapping[str, str], task: str, index: int) -> Object | None:
    """A pod of a job by its number: the newest, whose owners prove that it is this job's.

    Args:
        job: `name` and `uid` of the JobSet; with `prepare`, `submission`, too.
    """
    called = job.get("submission", job["name"]) if task == names.PREPARE else job["name"]
    number = f",{names.INDEX_LABEL}={index}" if task == names.TRAIN else ""
    found = api.list("Pod", labels=f"{names.JOB_LABEL}={called},{names.TASK_LABEL}={task}{number}")
    name = (names.train_job if task == names.TRAIN else names.prepare_job)(called)
    batch = api.find("BatchJob", name) if found else None
    if batch is None or job["uid"] not in names.owners(batch):
        return None
    mine = [one for one in found if batch["metadata"]["uid"] in names.owners(one)]
    return max(mine, key=lambda one: str(one["metadata"].get("creationTimestamp")), default=None)


def lost(api: Api, seen: Seen) -> list[str]:
    """The nodes of a job's pods that do not respond; empty if the caller may not read nodes."""
    nodes = {pod["spec"].get("nodeName") for pod in seen.pods if status.alive([pod])} - {None}
    queue = seen.job["metadata"].get("annotations", {}).get(names.QUEUE, "")
    with contextlib.suppress(ApiError):
        rows = api.table("Node", labels=f"{GROUP_LABEL}={queue}") if nodes else []
        bad = [row["metadata"]["name"] for row in rows if "NotReady" in str(row["columns"]["Status"])]
        return sorted(nodes.intersection(bad))
    return []


def refused(api: Api, seen: Seen) -> str:
    """Why Kubernetes creates no pods of a job that has its turn, such as a quota of the namespace, or a webhook that does not answer; empty
    if it does, or the caller may not read events."""
    name, waits = names.submission(seen.job), status.waits_for(seen.job)
    task, batch, count = names.TRAIN, names.train_job(seen.job["metadata"]["name"]), status.described(seen.job)["nodes"]
    if waits:
        task, batch, count = names.PREPARE, names.prepare_job(name), int(waits == names.prepare_job(name))
    stands = status.ended(seen.job) or (seen.job["spec"].get("suspend") and not waits)
    if stands or sum(status.task(pod) == task for pod in seen.pods) >= count:
        return ""
    with contextlib.suppress(ApiError):
        about = f"involvedObject.kind=Job,involvedObject.name={batch},reason=FailedCreate"
        told = [
            (status.seconds(e.get("lastTimestamp")) or 0, str(e.get("message")))
            for e in api.list("Event", fields=about)
        ]
        at, text = max(told, default=(0, ""))
        return text.removeprefix("Error creating: ") if time.time() - at < _RECENT else ""
    return ""


def positions(api: Api) -> dict[str, int]:
    """The position of each waiting job in its queue, from 1, by the job's uid. Kueue's order: priority, then age (`queueOrderingFunc`)."""
    found = [w for w in api.list("Workload", fields=_PENDING, page=0, without=["podSets"]) if _pending(w)]
    found.sort(key=lambda w: (-int(w["spec"].get("priority") or 0), _since(w), w["metadata"]["name"]))
    seen, places = Counter[str](), dict[str, int]()
    for workload in found:
        queue = str(workload["spec"].get("queueName"))
        seen[queue] += 1
        places |= dict.fromkeys(names.owners(workload), seen[queue])
    return places


def _ran(api: Api) -> int | None:
    """When the function that starts nodes ran last; None if that is not known."""
    with contextlib.suppress(ApiError):
        return status.seconds(api.get("Lease", names.LEASE)["spec"].get("renewTime"))
    return None


def _pending(workload: Object) -> bool:
    ended = status.condition(workload, "Finished") or status.condition(workload, "QuotaReserved")
    return not ended and workload["spec"].get("active") is not False


def _since(workload: Object) -> str:
    """When it began to wait: again after its nodes were not to be had."""
    evicted = status.condition(workload, "Evicted")
    again = evicted and evicted["reason"] == "AdmissionCheck"
    return str(evicted["lastTransitionTime"] if evicted and again else workload["metadata"]["creationTimestamp"])


def _before(api: Api, others: set[str]) -> dict[str, list[Object]]:
    """What jobs come after: the JobSet of each name, or those of the array."""
    found = {job["metadata"]["name"]: [job] for job in _named(api, "JobSet", names.JOB_LABEL, sorted(others))}
    for job in _named(api, "JobSet", names.ARRAY_LABEL, sorted(others - found.keys())):
        found.setdefault(names.array(job), []).append(job)
    return found


def rows(api: Api, labels: str = _OURS) -> list[Object]:
    """The metadata of the JobSets of `trn`, with `columns` (see `Api.table`), newest first."""
    found = [row for row in api.table("JobSet", labels=labels) if names.submitted_by_trn(row)]
    return sorted(found, key=lambda r: (r["metadata"]["creationTimestamp"], r["metadata"]["name"]), reverse=True)


def _named(api: Api, kind: str, label: str, values: Sequence[str]) -> list[Object]:
    """The objects with one of these values of a label."""
    if len(values) > _NAMED:
        return [o for o in api.list(kind) if (o["metadata"].get("labels") or {}).get(label) in set(values)]
    return api.list(kind, labels=f"{label} in ({','.join(values)})") if values else []
