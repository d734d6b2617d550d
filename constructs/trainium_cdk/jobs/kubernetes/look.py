"""Jobs as the cluster's API describes them, in a number of requests that does not grow with the number of jobs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence

from trainium_cdk.errors import ApiError
from trainium_cdk.jobs.kubernetes import names, status
from trainium_cdk.jobs.kubernetes.api import Api, Object
from trainium_cdk.jobs.kubernetes.status import Seen
from trainium_cdk.jobs.status import JobStatus, Stage
from trainium_cdk.outputs import GROUP_LABEL

_OURS = f"app.kubernetes.io/managed-by={names.MANAGED_BY}"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_PENDING = "status.admission.clusterQueue="
_NAMED = 200
"""Most jobs that one request names."""


def listed(api: Api, limit: int) -> list[Seen]:
    """The jobs that run, newest first; those that wait, in the order of their queue; those that have ended, newest first."""
    everything = rows(api)
    places = positions(api) if any(_waits(row) for row in everything) else {}

    def order(row: Object) -> tuple[int, int]:
        if not _waits(row):
            return (3 if row["columns"]["TerminalState"] else 0), 0
        return (2 if names.AFTER_LABEL in row["metadata"]["labels"] else 1), places.get(row["metadata"]["uid"], 0)

    chosen = [row["metadata"] for row in sorted(everything, key=order)[:limit]]
    jobs = {job["metadata"]["uid"]: job for job in _named(api, "JobSet", names.JOB_LABEL, [m["name"] for m in chosen])}
    return at(api, [jobs[m["uid"]] for m in chosen if m["uid"] in jobs], places, completed=False)


def active(api: Api) -> tuple[JobStatus, ...]:
    """The jobs that run or wait, without what their pods report."""
    return tuple(
        status.of(row, [Stage(names.TRAIN, row["metadata"]["name"], "PENDING" if _waits(row) else "RUNNING")])
        for row in rows(api)
        if not row["columns"]["TerminalState"]
    )


def at(
    api: Api, jobs: Sequence[Object], places: Mapping[str, int] | None = None, *, completed: bool = True
) -> list[Seen]:
    """What there is of each job: the batch Job of `prepare`, its pods, and while it waits, Kueue's Workload and the job before it.

    Args:
        places: see `positions`. Default: they are read if a job waits.
        completed: whether the pods of completed jobs are needed, too.
    """
    called = [job["metadata"]["name"] for job in jobs if completed or not status.condition(job, "Completed")]
    batch = _named(api, "BatchJob", names.JOB_LABEL, called)
    pods: dict[str, list[Object]] = {}
    for pod in _named(api, "Pod", names.JOB_LABEL, called):
        for uid in names.owners(pod):
            pods.setdefault(uid, []).append(pod)
    waits = [j["metadata"]["uid"] for j in jobs if not status.ended(j) and j["spec"].get("suspend")]
    workloads = {uid: w for w in _named(api, "Workload", _JOB_UID, waits) for uid in names.owners(w)}
    others = [other for job in jobs if status.waits_for(job) and (other := status.after(job))]
    before = {other["metadata"]["name"]: other for other in _named(api, "JobSet", names.JOB_LABEL, others)}
    if places is None:
        places = positions(api) if workloads else {}
    ran = _ran(api) if workloads else None
    found = []
    for job in jobs:
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        mine = {b["metadata"]["name"]: b for b in batch if uid in names.owners(b)}
        own = [pod for b in mine.values() for pod in pods.get(b["metadata"]["uid"], [])]
        prepare = mine.get(names.prepare_job(name))
        after = before.get(status.after(job))
        found.append(Seen(job, own, prepare, after, workloads.get(uid), places.get(uid, 0), ran))
    return found


def pod(api: Api, job: Mapping[str, str], task: str, index: int) -> Object | None:
    """A pod of a job by its number: the newest, whose owners prove that it is this job's.

    Args:
        job: `name` and `uid` of the JobSet.
    """
    number = f",{names.INDEX_LABEL}={index}" if task == names.TRAIN else ""
    found = api.list("Pod", labels=f"{names.JOB_LABEL}={job['name']},{names.TASK_LABEL}={task}{number}")
    name = (names.train_job if task == names.TRAIN else names.prepare_job)(job["name"])
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


def rows(api: Api) -> list[Object]:
    """The metadata of the JobSets of `trn`, with `columns` (see `Api.table`), newest first."""
    found = [row for row in api.table("JobSet", labels=_OURS) if names.submitted_by_trn(row)]
    return sorted(found, key=lambda r: (r["metadata"]["creationTimestamp"], r["metadata"]["name"]), reverse=True)


def _waits(row: Object) -> bool:
    return not row["columns"]["TerminalState"] and str(row["columns"]["Suspended"]).lower() == "true"


def _named(api: Api, kind: str, label: str, values: Sequence[str]) -> list[Object]:
    """The objects with one of these values of a label."""
    if len(values) > _NAMED:
        return [o for o in api.list(kind) if (o["metadata"].get("labels") or {}).get(label) in set(values)]
    return api.list(kind, labels=f"{label} in ({','.join(values)})") if values else []
