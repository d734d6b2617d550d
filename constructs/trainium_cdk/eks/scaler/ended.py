"""Jobs of `trn` that have ended, and that run and do not go on: a line of the function's log for each, which `TrnJobNotices` sends on. Pure, but for
the list of JobSets.

What a running job finds wrong with itself, its runner tells by the readiness probe of its first pod. A job's pods have no key of this API, and a pod
that is not ready has no text: the job's own log says what it is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import after, observe

Object = dict[str, Any]

_OURS = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dtrn"
_CANCELLED = "Cancelled"
"""Reason of a JobSet's condition that `trn cancel` sets."""
_SET = "jobset.sigs.k8s.io/jobset-uid"
_DESCRIPTION = "trainium-cdk/description"
_TRAIN = "train"
_SURE = 120
"""Seconds for which a pod must not have been ready: two probes. A kubelet that starts again reports all pods as not ready until it has probed them."""
_WRONG = "it hangs, its loss is no number, or most of its budget is used"


def noting(pods: Iterable[Object], unready: dict[str, float]) -> Iterator[Object]:
    """The same pods. Since when a job's training is not ready any more is noted, by the uid of its JobSet."""
    for one in pods:
        with contextlib.suppress(Exception):  # somebody has written it
            if at := _unready(one):
                unready.setdefault(one["metadata"]["labels"][_SET], at)
        yield one


def _unready(pod: Object) -> float:
    """Since when the container that trains is not ready, which it was before; 0 if it is, has not been, or does not run."""
    if pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") != "Running":
        return 0.0
    for one in pod["status"].get("containerStatuses") or ():
        if one["name"] == _TRAIN and one["ready"] is False and "running" in one["state"]:
            began = observe.seconds(one["state"]["running"]["startedAt"])
            # not `Ready`, which also tells of a lost node
            found = [c for c in pod["status"]["conditions"] if c["type"] == "ContainersReady"]
            at = observe.seconds(found[0]["lastTransitionTime"])
            return at if found[0]["status"] == "False" and at > began else 0.0
    return 0.0


def lines(
    kubernetes: Any, cluster: str, since: float, now: float, unready: Mapping[str, float] | None = None
) -> Iterator[str]:
    """A line for each job that has ended between two runs, and for each that does not go on since then. Members of an array count together.

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
        key = (metadata["namespace"], labels.get(after.ARRAY) or metadata["name"])
        try:
            how = observe.is_true(one, "Completed", "Failed")
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
        at = max(ended for _, _, ended, _ in members)
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
        user = str(json.loads(notes[_DESCRIPTION]).get("user") or "") if _DESCRIPTION in notes else ""
    return {"Queue": notes.get(after.QUEUE, ""), **({"User": user[:200]} if user else {})}


def _state(how: Object) -> str:
    if how["type"] == "Completed":
        return "COMPLETED"
    return "CANCELLED" if how.get("reason") == _CANCELLED else "FAILED"
