"""Labels, annotations and conditions of the Kubernetes objects of jobs, which the node scaler's function and `trn` both read or write; tags of
capacity reservations. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a JobSet: Kueue's LocalQueue in which it waits."""
MANAGED_BY = "trn"
"""Value of the label `app.kubernetes.io/managed-by` of every object of a job."""
ARRAY_LABEL = "trainium-cdk/array"
"""On every object and pod of an array of jobs; its value is the array's name. Each member is its own JobSet."""
AFTER_LABEL = "trainium-cdk/after-job"
"""Label of a JobSet that is not in its queue yet: the batch Job of `prepare` that must complete first, or the JobSet of `AFTER`. The node
scaler's function then replaces this label by the queue's."""
AFTER = "trainium-cdk/after"
"""Annotation of a JobSet: another JobSet in its namespace that must complete first, or an array: all JobSets with this name as their label
`ARRAY_LABEL`."""
QUEUE = "trainium-cdk/queue"
"""Annotation of a JobSet: its queue, in which it may not wait yet."""
DESCRIPTION = "trainium-cdk/description"
"""Annotation: the job as `trn status` shows it, JSON."""
DIGEST = "trainium-cdk/digest"
"""Annotation: SHA-256 of what was sent, so that a token is not used for two jobs."""
RUN_LABEL = "jobset.sigs.k8s.io/jobset-uid"
"""Label of a pod, of JobSet: the uid of its JobSet."""
ASIDE = "trainium-cdk/set-aside"
"""Annotation of a Workload that the node scaler's function has set aside, as it can never start: why."""
LEAVING = "trainium-cdk/leaving"
"""Annotation of a node that the node scaler's function has cordoned, to end it in its next run."""
BROKEN = "trainium-cdk/broken"
"""Annotation of a node that the node scaler's function has cordoned because a device is broken: the reason. It stays cordoned: a reset repairs
no memory."""
LEASE = "trn-scaler"
"""Lease in the jobs' namespace that the node scaler's function renews in each run."""
CLUSTER = "trainium-cdk:cluster"
"""Tag of a capacity reservation: the cluster for which it was made; `RESERVED_FOR` is the node group."""
RESERVED_FOR = "trainium-cdk:node-group"
CANCELLED = "Cancelled"
"""Reason of a JobSet's condition `Failed` that `trn cancel` sets."""
NEVER = "DependencyNeverSatisfied"
"""Reason of the condition `Failed` of a JobSet whose `AFTER` did not complete: Slurm's word for it."""
TRAIN = "train"
"""The container of a pod that trains."""


def condition(resource: Mapping[str, Any] | None, *kinds: str, status: str = "True") -> dict[str, Any] | None:
    """A condition of an object of one of these kinds, if one has that status."""
    conditions = (resource or {}).get("status", {}).get("conditions") or []
    return next((dict(one) for one in conditions if one["type"] in kinds and one["status"] == status), None)


def seconds(text: Any) -> int | None:
    """A Kubernetes timestamp in seconds since 1970; None for 1970 itself, which stands for never, and for what is before it."""
    try:
        return max(0, int(dt.datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp())) or None
    except (ValueError, OverflowError):
        return None


def unready(pod: Mapping[str, Any]) -> int:
    """Since when the container of a pod that trains is not ready, which it was before: its probe fails while something is wrong with the training.
    0 if it is, has not been, or does not run."""
    now = pod.get("status", {})
    if now.get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
        return 0
    training: Mapping[str, Any] = next((one for one in now.get("containerStatuses") or () if one["name"] == TRAIN), {})
    began = seconds((training.get("state", {}).get("running") or {}).get("startedAt"))
    lost = condition(pod, "ContainersReady", status="False")  # not `Ready`, which also tells of a lost node
    at = seconds(lost.get("lastTransitionTime")) if lost else None
    return at if began and at and at > began and training.get("ready") is False else 0
