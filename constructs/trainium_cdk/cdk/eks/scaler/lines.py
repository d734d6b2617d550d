"""Lines of the function's log that AWS reads: metrics of a cluster for CloudWatch, in its embedded metric format; and jobs of `trn` that have ended,
or that run without progress, which `TrnJobNotices` sends on. Pure, but for the list of JobSets.

What a running job finds wrong with itself, its runner tells by the readiness probe of its first pod. A job's pods have no key of this API, and a pod
that is not ready has no text: the job's own log says what it is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import after, observe
from .labels import ARRAY_LABEL, CANCELLED, DESCRIPTION, MANAGED_BY, QUEUE, RUN_LABEL, condition
from .labels import unready as unready_since
from .model import Group, GroupNode, NodeRequest

Object = dict[str, Any]

_OURS = f"labelSelector=app.kubernetes.io%2Fmanaged-by%3D{MANAGED_BY}"
_SURE = 120
"""Seconds for which a pod must not have been ready: two probes. A kubelet that starts again reports all pods as not ready until it has probed them."""
_WRONG = "it hangs, its loss is not a number, or most of its budget is used"
NAMESPACE = "Trainium"
STATES = ("Busy", "Idle", "Starting", "Failed")


def metrics(cluster: str, groups: Iterable[Group], requests: Iterable[NodeRequest], now: float) -> Iterator[str]:
    """One line for the cluster, and one for each node group. A request that has its nodes is a job that runs."""
    groups, requests = tuple(groups), tuple(requests)
    waits = [int(now - r.created) for r in requests if not r.provisioned]
    jobs = {"JobsRunning": len(requests) - len(waits), "JobsWaiting": len(waits), "LongestWait": max(waits, default=0)}
    counts = {g.name: {f"Nodes{s}": sum(_node_state(n) == s for n in g.nodes) for s in STATES} for g in groups}
    total = {f"Nodes{s}": sum(of[f"Nodes{s}"] for of in counts.values()) for s in STATES}
    yield _embedded({**jobs, **total}, now, Cluster=cluster)
    for name, of in counts.items():
        yield _embedded(of, now, Cluster=cluster, Queue=name)


def _node_state(node: GroupNode) -> str:
    if node.state == "usable":
        return "Busy" if node.busy else "Idle"
    return "Starting" if node.state == "starting" else "Failed"


def _embedded(values: dict[str, int], now: float, **dimensions: str) -> str:
    listed = [{"Name": name, "Unit": "Seconds" if name == "LongestWait" else "Count"} for name in values]
    one = {"Namespace": NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": listed}
    return json.dumps({"_aws": {"Timestamp": int(now * 1000), "CloudWatchMetrics": [one]}, **dimensions, **values})


def noting(pods: Iterable[Object], unready: dict[str, float]) -> Iterator[Object]:
    """The same pods. Since when a job's training is not ready any more is noted, by the uid of its JobSet."""
    for one in pods:
        with contextlib.suppress(Exception):  # somebody has written it
            if at := unready_since(one):
                unready.setdefault(one["metadata"]["labels"][RUN_LABEL], at)
        yield one


def ended(
    kubernetes: Any, cluster: str, since: float, now: float, unready: Mapping[str, float] | None = None
) -> Iterator[str]:
    """A line for each job that has ended between two runs, and for each that made no progress since then. Members of an array count together.

    Args:
        kubernetes: the cluster's API, with `list`.
        cluster: its name.
        since: when the function ran before, seconds since 1970.
        now: of this run.
        unready: see `noting`.
    """
    jobs: dict[tuple[str, str], list[tuple[Object | None, float, float, Object]]] = {}
    wrong: dict[tuple[str, str], float] = {}
    for one in kubernetes.list(f"{after.SETS}/jobsets", _OURS):
        metadata = one["metadata"]
        labels = metadata.get("labels") or {}
        key = (metadata["namespace"], labels.get(ARRAY_LABEL) or metadata["name"])
        try:
            how = condition(one, "Completed", "Failed")
            at = observe.seconds(how["lastTransitionTime"]) if how else 0.0
        except Exception as error:
            print(f"JobSet {'/'.join(key)} cannot be read: {error!r}"[:1000])
            continue
        jobs.setdefault(key, []).append((how, observe.seconds(metadata["creationTimestamp"]), at, _of(metadata)))
        if how is None and (begin := (unready or {}).get(metadata["uid"])):
            wrong[key] = min(begin, wrong.get(key, begin))
    # times are whole seconds, so only those that are over
    first, last = int(since), int(now) - 1
    for (namespace, id), at in wrong.items():
        if first <= at + _SURE <= last:
            line = {"JobFound": id, "Found": "unready", "State": "RUNNING", **jobs[namespace, id][0][3]}
            yield json.dumps({**line, "Namespace": namespace, "Reason": _WRONG, "Cluster": cluster})
    for (namespace, id), members in jobs.items():
        ends = [how for how, *_ in members if how]
        at = max(end for _, _, end, _ in members)
        if len(ends) < len(members) or not first <= at <= last:
            continue
        states = [_state(how) for how in ends]
        several = len(ends) > 1
        told = [f"{states.count(s)} {s}" if several else s for s in dict.fromkeys(sorted(states))]
        bad = next((how for how in ends if how["type"] == "Failed"), None)
        yield json.dumps({
            "JobEnded": id, "State": ", ".join(told), **members[0][3], "Namespace": namespace,
            "Seconds": int(at - min(created for _, created, *_ in members)),
            **({"Reason": str(bad.get("message") or "")[:200]} if bad else {}), "Cluster": cluster,
        })  # fmt: skip


def _of(metadata: Object) -> Object:
    """A job's queue and user, as its submission has noted them."""
    notes, user = metadata.get("annotations") or {}, ""
    with contextlib.suppress(Exception):
        user = str(json.loads(notes[DESCRIPTION]).get("user") or "") if DESCRIPTION in notes else ""
    return {"Queue": notes.get(QUEUE, ""), **({"User": user[:200]} if user else {})}


def _state(how: Object) -> str:
    if how["type"] == "Completed":
        return "COMPLETED"
    return "CANCELLED" if how.get("reason") == CANCELLED else "FAILED"
