"""JobSets that enter their queue once a batch Job has completed: the training, after what `trn submit` lets it prepare.

Kueue asks for nodes for all pods of a JobSet before any of them starts. So such a JobSet is created suspended and without its queue's
label, and no node waits for the Job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

AFTER = "trainium-cdk/after-job"
"""Label of a JobSet: the batch Job in its namespace. Removed when the JobSet enters its queue."""
QUEUE = "trainium-cdk/queue"
"""Annotation: its queue."""
_DIGEST = "trainium-cdk/digest"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_SETS = "/apis/jobset.x-k8s.io/v1alpha2"


def release(kubernetes: Any, now: float) -> dict[str, str]:
    """Let each JobSet whose Job has completed enter its queue, and end each whose Job has failed.

    Args:
        kubernetes: the cluster's API, with `list` and `patch`.
        now: seconds since 1970.

    Returns:
        What was done, by "namespace/name" of the JobSet.
    """
    done = {}
    for job in list(kubernetes.list(f"{_SETS}/jobsets", f"labelSelector={AFTER}")):
        metadata = job["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        path = f"{_SETS}/namespaces/{namespace}/jobsets/{name}"
        chosen = f"fieldSelector=metadata.name%3D{metadata['labels'][AFTER]}"
        jobs = kubernetes.list(f"/apis/batch/v1/namespaces/{namespace}/jobs", chosen)
        how = _ended(jobs, metadata.get("annotations", {}))
        proof = {key: metadata[key] for key in ("uid", "resourceVersion")}
        if how is None or _is_true(job, "Completed", "Failed"):
            continue
        if how["type"] == "Complete":
            labels = {AFTER: None, _QUEUE_LABEL: metadata["annotations"][QUEUE]}
            kubernetes.patch(path, {"metadata": {**proof, "labels": labels}})
            done[f"{namespace}/{name}"] = "enters its queue"
        else:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            why = f"{metadata['labels'][AFTER]} failed: {how.get('message', '')}"
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "PrepareFailed",
                "message": why,
                "lastTransitionTime": at,
            }
            others = [c for c in job.get("status", {}).get("conditions") or [] if c["type"] != "Failed"]
            status = {"terminalState": "Failed", "conditions": [*others, failed]}
            kubernetes.patch(f"{path}/status", {"metadata": proof, "status": status})
            done[f"{namespace}/{name}"] = why
    return done


def _ended(jobs: Iterable[dict[str, Any]], annotations: dict[str, str]) -> dict[str, Any] | None:
    """The condition with which the Job of the same submission has ended."""
    for job in jobs:
        if job["metadata"].get("annotations", {}).get(_DIGEST) == annotations.get(_DIGEST):
            return _is_true(job, "Complete", "Failed")
    return None


def _is_true(found: dict[str, Any], *kinds: str) -> dict[str, Any] | None:
    conditions = found.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] in kinds and c["status"] == "True"), None)
