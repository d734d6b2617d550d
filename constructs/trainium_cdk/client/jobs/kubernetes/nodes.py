"""The nodes of an EKS cluster, as its API describes them; and workloads of other clients than `trn` in the jobs' namespace. They take nodes too, and only
their owners may end them."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence

from trainium_cdk.client.jobs.kubernetes import parts, reasons, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.kubernetes.look import Workloads, refusals
from trainium_cdk.client.jobs.status import Foreign, Node
from trainium_cdk.description.outputs import GROUP_LABEL, EksCluster
from trainium_cdk.errors import ApiError, JobError

_TYPE = "node.kubernetes.io/instance-type"
_LEAVES = "no job has used it for a while: it is ended"
_HARDWARE = "AcceleratedHardwareReady"
"""Conditions that EKS's node monitoring agent sets."""
_PRESSURE = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_VOLCANO_STATES = {"Pending": "PENDING", "Inqueue": "PENDING", "Running": "RUNNING", "Restarting": "RUNNING"}
_ABSENT = (403, 404)
"""Volcano is not installed, or its jobs are none of the caller's."""


def list_nodes(api: Api, cluster: EksCluster) -> tuple[Node, ...]:
    """The nodes, training groups' first, by name. In two requests; with claims, in three."""
    jobs: dict[str, str] = {}
    others: dict[str, str] = {}
    taken: dict[str, list[str]] = {}
    claimed = _claimed(api) if any(fleet.claims for fleet in cluster.fleets) else {}
    # a pod whose init container compiles, or whose image is pulled, is Pending: its node is taken
    for pod in api.list("Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"):
        job, name = (pod["metadata"].get("labels") or {}).get(parts.JOB_LABEL), pod["spec"]["nodeName"]
        who = f"{job}:{status.task(pod)}" if job else f"pod {pod['metadata']['name']}"
        (jobs if job else others)[name] = who
        if claimed and (count := claimed.get(pod["metadata"]["uid"])):
            taken.setdefault(name, []).append(f"{who} {count}")
    for name, users in taken.items():
        jobs[name] = f"devices in use: {', '.join(sorted(users))}"
    found = [_node(node, cluster, jobs, others) for node in api.list("Node")]
    return tuple(sorted(found, key=lambda node: (not node.queue, node.queue, node.name)))


def _claimed(api: Api) -> Mapping[str, int]:
    """Count the Neuron devices that pods have by claims, by the pod's uid; of none, if the caller may not read claims."""
    from trainium_cdk.description.catalog import Catalog

    driver, found = Catalog.load().eks.claims.device_class, Counter[str]()
    with contextlib.suppress(ApiError):
        for claim in api.list("ResourceClaim"):
            state = claim.get("status") or {}
            results = (state.get("allocation") or {}).get("devices", {}).get("results") or []
            count = sum(one["driver"] == driver for one in results)
            for pod in state.get("reservedFor") or []:
                found[str(pod["uid"])] += count
    return found


def _node(node: Object, cluster: EksCluster, jobs: Mapping[str, str], others: Mapping[str, str]) -> Node:
    """Describe a node. `others`: pods of other clients, which matter on the nodes that are for jobs."""
    meta, spec, state = node["metadata"], node["spec"], node.get("status", {})
    labels = meta.get("labels", {})
    conditions = {one["type"]: one for one in state.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    leaving = parts.LEAVING in meta.get("annotations", {})
    words = [
        "ready" if ready else "notready",
        "leaving" if leaving else "cordoned" if spec.get("unschedulable") else "",
    ]
    fleets = [fleet for fleet in cluster.fleets if fleet.resource == labels.get(GROUP_LABEL)]
    addresses = [one["address"] for one in state.get("addresses", []) if one["type"] == "InternalIP"]
    created = dt.datetime.fromisoformat(meta["creationTimestamp"])
    return Node(
        name=meta["name"],
        queue=fleets[0].queue if fleets else "",
        instance_type=labels.get(_TYPE, ""),
        state="+".join(filter(None, words)),
        job=jobs.get(meta["name"], "") or (others.get(meta["name"], "") if fleets else ""),
        reason="; ".join([_LEAVES] * leaving + _reasons(ready, conditions, spec.get("taints", []))),
        address=addresses[0] if addresses else meta["name"],
        booted=int(created.timestamp()),
        instance=spec.get("providerID", "").rpartition("/")[2],
    )


def _reasons(ready: bool, conditions: Mapping[str, Object], taints: Sequence[Object]) -> list[str]:
    wrong = [one for kind, one in conditions.items() if kind in _PRESSURE and one["status"] == "True"]
    wrong += [one for kind, one in conditions.items() if kind == _HARDWARE and one["status"] == "False"]
    if not ready:
        wrong.insert(0, conditions.get("Ready", {}))
    found = [str(one.get("message") or one.get("reason") or "has not reported yet") for one in wrong]
    return found + [f"taint {one['key']}" for one in taints if one.get("effect") == "NoExecute"]


def list_others(
    api: Api,
    workloads: Workloads,
    places: Mapping[str, reasons.Waits],
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
    refused = refusals(api) if theirs[1] else {}
    found = [_of_workload(one, places, refused) for one in (*theirs[0], *theirs[1])]
    try:
        rows = api.table("VolcanoJob", labels="")
    except ApiError as e:
        if e.status not in _ABSENT:
            raise
        rows = []
    found += [_of_volcano(row) for row in rows if row["columns"].get("STATUS") in _VOLCANO_STATES]
    return tuple(sorted(found, key=lambda one: (one.submitted or 0, one.name), reverse=True))


def refuse_foreign(api: Api, name: str, others: Sequence[Foreign]) -> None:
    """Raises JobError: someone else's work has this name."""
    for one in others:
        if one.name == name:
            raise foreign_error(api, one.kind, name, one.reason)


def foreign_error(api: Api, kind: str, name: str, reason: str = "") -> JobError:
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


def _of_workload(row: Object, places: Mapping[str, reasons.Waits], refused: Mapping[str, str]) -> Foreign:
    """Describe a Workload, or a row of one. `refused`: see `look.refusals`."""
    known = next((places[uid] for uid in parts.owners(row) if uid in places), reasons.Waits())
    why = reasons.describe_wait(known.workload, known) if known.workload else refused.get(str(_owner(row)["name"]), "")
    owner, columns = _owner(row), row.get("columns") or {"Queue": row["spec"].get("queueName")}
    group = str(owner["apiVersion"]).rpartition("/")[0].partition("/")[0]
    return Foreign(
        name=str(owner["name"]),
        kind=f"{owner['kind'].lower()}{'.' + group if group else ''}",
        state="RUNNING" if columns.get("Admitted") == "True" else "PENDING",
        queue=str(columns.get("Queue") or ""),
        submitted=parts.seconds(row["metadata"].get("creationTimestamp")),
        reason=reasons.cut(why),
    )


def _of_volcano(row: Object) -> Foreign:
    return Foreign(
        name=row["metadata"]["name"],
        kind="job.batch.volcano.sh",
        state=_VOLCANO_STATES[row["columns"]["STATUS"]],
        queue="",
        submitted=parts.seconds(row["metadata"].get("creationTimestamp")),
    )
