"""Workloads of other clients than `trn` in the jobs' namespace. They take nodes too, and only their owners may end them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainium_cdk.client.jobs.kubernetes import look, names, queue, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.status import Foreign
from trainium_cdk.errors import ApiError, JobError

_VOLCANO_STATES = {"Pending": "PENDING", "Inqueue": "PENDING", "Running": "RUNNING", "Restarting": "RUNNING"}
_ABSENT = (403, 404)
"""Volcano is not installed, or its jobs are none of the caller's."""


def list_others(
    api: Api,
    workloads: look.Workloads,
    places: Mapping[str, queue.Waits],
    everything: Sequence[Object],
) -> tuple[Foreign, ...]:
    """List other clients' jobs, newest first: all whose Workloads Kueue keeps, and Volcano's jobs, such as TorchX's.

    Args:
        places: see `look.waiting`.
        everything: see `look.rows`. In a namespace a name is one JobSet's.
    """
    ours = {row["metadata"]["name"] for row in everything}
    theirs = [
        [one for one in some if not (_owner(one)["kind"] == "JobSet" and _owner(one)["name"] in ours)]
        for some in (workloads.without, workloads.holders)
    ]
    refused = look.refusals(api) if theirs[1] else {}
    found = [_of_workload(one, places, refused) for one in (*theirs[0], *theirs[1])]
    try:
        rows = api.table("VolcanoJob", labels="")
    except ApiError as e:
        if e.status not in _ABSENT:
            raise
        rows = []
    found += [_of_volcano(row) for row in rows if row["columns"].get("STATUS") in _VOLCANO_STATES]
    return tuple(sorted(found, key=lambda one: (one.submitted or 0, one.name), reverse=True))


def refuse(api: Api, name: str, others: Sequence[Foreign]) -> None:
    """Raises JobError: someone else's work has this name."""
    for one in others:
        if one.name == name:
            raise error(api, one.kind, name, one.reason)


def error(api: Api, kind: str, name: str, reason: str = "") -> JobError:
    """Return the error for a Workload that `trn` leaves alone. It names the commands to use.

    Args:
        reason: why it waits.
    """
    waits = f". It waits: {reason}" if reason else ""
    here = f"kubectl -n {api.namespace}"
    return JobError(
        f"{name} is not a job of trn: it is a {kind} of another client, which trn leaves alone. Look at it with `{here} describe "
        f"{kind}/{name}`; its owner ends it with `{here} delete {kind}/{name}`, or with the program that made it{waits}"
    )


def _owner(row: Object) -> Object:
    """The object that a Workload stands for; itself, if it has none."""
    owners = row["metadata"].get("ownerReferences") or []
    itself = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": row["metadata"]["name"]}
    return next((dict(one) for one in owners if one.get("controller")), dict(owners[0]) if owners else itself)


def _of_workload(row: Object, places: Mapping[str, queue.Waits], refused: Mapping[str, str]) -> Foreign:
    """Describe a Workload, or a row of one. `refused`: see `look.refusals`."""
    known = next((places[uid] for uid in names.owners(row) if uid in places), queue.Waits())
    why = queue.describe_wait(known.workload, known) if known.workload else refused.get(str(_owner(row)["name"]), "")
    owner, columns = _owner(row), row.get("columns") or {"Queue": row["spec"].get("queueName")}
    group = str(owner["apiVersion"]).rpartition("/")[0].partition("/")[0]
    return Foreign(
        name=str(owner["name"]),
        kind=f"{owner['kind'].lower()}{'.' + group if group else ''}",
        state="RUNNING" if columns.get("Admitted") == "True" else "PENDING",
        queue=str(columns.get("Queue") or ""),
        submitted=names.seconds(row["metadata"].get("creationTimestamp")),
        reason=status.cut(why),
    )


def _of_volcano(row: Object) -> Foreign:
    return Foreign(
        name=row["metadata"]["name"],
        kind="job.batch.volcano.sh",
        state=_VOLCANO_STATES[row["columns"]["STATUS"]],
        queue="",
        submitted=names.seconds(row["metadata"].get("creationTimestamp")),
    )
