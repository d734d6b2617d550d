"""JobSets that enter their queue once others have completed: the training, after what `trn submit` lets it prepare (a batch Job), and
after another training (`trn submit --after`, a JobSet).

Kueue asks for nodes for all pods of a JobSet before any of them starts. So such a JobSet is created suspended and without its queue's
label, and no node waits for the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from . import observe
from .labels import AFTER, AFTER_LABEL, ARRAY_LABEL, DIGEST, NEVER, QUEUE, QUEUE_LABEL, condition

Object = dict[str, Any]

SETS = "/apis/jobset.x-k8s.io/v1alpha2"
_GONE = {"type": "Failed", "message": "it was deleted"}


def _call(_what: str, call: Callable[..., str], *given: Any) -> str:
    return call(*given)


def release(kubernetes: Any, now: float, attempt: Callable[..., str | None] = _call) -> dict[str, str]:
    """Let each JobSet enter its queue for which all others have completed, and end each for which one has failed.

    Args:
        kubernetes: the cluster's API, with `list` and `patch`.
        now: seconds since 1970.
        attempt: called for each JobSet with a name of it, a function, and arguments for the function: returns what that returns, or None
            if it has failed, so that one JobSet does not keep others waiting. Default: errors are raised.

    Returns:
        What was done, by "namespace/name" of the JobSet.
    """
    done = dict[str, str]()

    @functools.cache
    def named(folder: str, name: str, key: str = "fieldSelector=metadata.name") -> list[Object]:
        """Many may wait for one."""
        found = kubernetes.list(folder, f"{key}%3D{quote(name, safe='')}")
        return [{part: one.get(part, {}) for part in ("metadata", "status")} for one in found]

    for job in kubernetes.list(f"{SETS}/jobsets", f"labelSelector={AFTER_LABEL}"):
        known = QUEUE in job["metadata"].get("annotations", {})
        if known and not condition(job, "Completed", "Failed"):
            key = observe.key(job)
            if told := attempt(f"JobSet {key}", _release, kubernetes, named, job, now):
                done[key] = told
    return done


def _release(kubernetes: Any, named: Callable[..., list[Object]], job: Object, now: float) -> str:
    """Release a JobSet, or mark it as failed, and return a description; empty if it has to wait."""
    metadata, needs = job["metadata"], list(_needs(named, job["metadata"]))
    path = f"{SETS}/namespaces/{metadata['namespace']}/jobsets/{metadata['name']}"
    proof = {k: metadata[k] for k in ("uid", "resourceVersion")}
    for name, reason, how in needs:
        if how and how["type"] == "Failed":
            why = f"{name} did not complete: {how.get('message', '')}"
            failed = observe.condition("Failed", True, reason, why, now)
            others = [c for c in job.get("status", {}).get("conditions") or [] if c["type"] != "Failed"]
            status = {"terminalState": "Failed", "conditions": [*others, failed]}
            kubernetes.patch(f"{path}/status", {"metadata": proof, "status": status})
            return why
    if not all(how for *_, how in needs):
        return ""
    labels = {AFTER_LABEL: None, QUEUE_LABEL: metadata["annotations"][QUEUE]}
    kubernetes.patch(path, {"metadata": {**proof, "labels": labels}})
    return "enters its queue"


def _needs(named: Callable[..., list[Object]], metadata: Object) -> Iterator[tuple[str, str, Object | None]]:
    """List a JobSet's dependencies: name, reason if the JobSet fails with it, and final condition; None before its end."""
    first, notes = metadata["labels"][AFTER_LABEL], metadata.get("annotations", {})
    inside = f"/namespaces/{metadata['namespace']}"
    if first != (other := notes.get(AFTER)):
        jobs = named(f"/apis/batch/v1{inside}/jobs", first)
        mine = [j for j in jobs if j["metadata"].get("annotations", {}).get(DIGEST) == notes.get(DIGEST)]
        how = condition(mine[0], "Complete", "Failed") if mine else None
        yield first, "PrepareFailed", how if jobs else _GONE  # it was created before the JobSet
    if other:
        path = f"{SETS}{inside}/jobsets"
        sets = named(path, other) or named(path, other, f"labelSelector={ARRAY_LABEL}")
        ended = [condition(one, "Completed", "Failed") for one in sets] or [_GONE]
        failed = (how for how in ended if how and how["type"] == "Failed")
        yield other, NEVER, next(failed, ended[0] if all(ended) else None)
