"""Names of a job and its objects on Kubernetes. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trainium_cdk.cdk.eks.scaler.labels import AFTER as AFTER
from trainium_cdk.cdk.eks.scaler.labels import AFTER_LABEL as AFTER_LABEL
from trainium_cdk.cdk.eks.scaler.labels import ARRAY_LABEL as ARRAY_LABEL
from trainium_cdk.cdk.eks.scaler.labels import BROKEN as BROKEN
from trainium_cdk.cdk.eks.scaler.labels import CANCELLED as CANCELLED
from trainium_cdk.cdk.eks.scaler.labels import DESCRIPTION as DESCRIPTION
from trainium_cdk.cdk.eks.scaler.labels import DIGEST as DIGEST
from trainium_cdk.cdk.eks.scaler.labels import LEASE as LEASE
from trainium_cdk.cdk.eks.scaler.labels import LEAVING as LEAVING
from trainium_cdk.cdk.eks.scaler.labels import MANAGED_BY as MANAGED_BY
from trainium_cdk.cdk.eks.scaler.labels import NEVER as NEVER
from trainium_cdk.cdk.eks.scaler.labels import QUEUE as QUEUE
from trainium_cdk.cdk.eks.scaler.labels import QUEUE_LABEL as QUEUE_LABEL
from trainium_cdk.cdk.eks.scaler.labels import TRAIN as TRAIN
from trainium_cdk.cdk.eks.scaler.labels import condition as condition
from trainium_cdk.cdk.eks.scaler.labels import seconds as seconds
from trainium_cdk.errors import JobError

JOBSET = "jobset.x-k8s.io/v1alpha2"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""Label of a JobSet: Kueue's WorkloadPriorityClass."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Label of a pod: its number within its Job."""
JOB_LABEL = "trainium-cdk/job"
"""On every object and pod of a job; its value is the job's name."""
KIND_LABEL = "trainium-cdk/kind"
MEMBER_LABEL = "trainium-cdk/array-index"
"""On a member's JobSet and pods: its index."""
CACHE_LABEL = "trainium-cdk/cache-set"
HOLDER = "trainium-cdk/held-by"
"""Annotation of a cache set's guard: the job that uses it."""
TASK_LABEL = "trainium-cdk/task"
"""On a pod: `train` or `prepare`."""
RUNNER = "trainium-cdk/runner"
"""Annotation of a JobSet: the ConfigMap with its runner."""

FOLDER = "folder"
"""The init container that creates the jobs' directory: the first one that needs the pod's image."""
PREPARE = "prepare"
REFUSED, NOT_COMPILED, FAILED, TIMED_OUT = FINAL = (64, 65, 66, 124)
"""Exit codes of the runner at which a job ends: it cannot start; it does not compile; its program has failed; its time limit is reached."""
MAX_NAME = 44
"""Longest name of a job: the names of its pods, `<name>-train-0-9999-abcde`, have 63 characters at most."""


def object_name(id: str) -> str:
    """The name of a job's objects: its id, with hyphens for dots, as host names and services require.

    Raises:
        JobError: it is too long.

    >>> object_name("gpt-6.7b-20261120-4f3a9c")
    'gpt-6-7b-20261120-4f3a9c'
    """
    name = re.sub(r"[^a-z0-9]+", "-", id).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}".rstrip("-")
    if len(name) > MAX_NAME:
        raise JobError(
            f"the job's name is {name}, {len(name)} characters; at most {MAX_NAME} are allowed. Give a shorter --name or "
            "--token"
        )
    return name


def member(name: str, index: int) -> str:
    """The name of the objects of an array's member.

    Raises:
        JobError: it is too long.
    """
    return object_name(f"{name}-{index}")


def array(obj: Mapping[str, Any]) -> str:
    """The name of the array that an object belongs to; empty if none."""
    return str((obj["metadata"].get("labels") or {}).get(ARRAY_LABEL, ""))


def submission(obj: Mapping[str, Any]) -> str:
    """The name under which an object was submitted: the array's, or the job's own."""
    return array(obj) or str(obj["metadata"]["name"])


def id_of(obj: Mapping[str, Any]) -> str:
    """The id of a JobSet's job: its name, or `ARRAY/INDEX`."""
    if not (name := array(obj)):
        return str(obj["metadata"]["name"])
    return f"{name}/{obj['metadata']['labels'].get(MEMBER_LABEL, '?')}"


def cache_guard(cache_set: str) -> str:
    """The name of the object that records which job uses a cache set.

    >>> cache_guard("bert-large")
    'trn-cache-bert-large'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", cache_set.lower()).strip("-")
    if plain == cache_set:
        return f"trn-cache-{plain}"
    # different names may become equal when simplified: the hash keeps their cache sets apart
    return f"trn-cache-{plain}-{hashlib.sha256(cache_set.encode()).hexdigest()[:6]}"


def priority_class(priority: str) -> str:
    """The WorkloadPriorityClass of a job's priority: one of the stack's for low, normal and high, else the class of this name."""
    return f"trn-{priority}" if priority in ("low", "normal", "high") else priority


def labels(name: str, kind: str) -> dict[str, str]:
    """The labels of a job's objects."""
    return {"app.kubernetes.io/managed-by": MANAGED_BY, JOB_LABEL: name, KIND_LABEL: kind}


def submitted_by_trn(obj: Mapping[str, Any], job: str = "") -> bool:
    """Return whether `trn` created an object of a job: its labels name `trn` and the job (default: the object's own name)."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    named: bool = labels.get(JOB_LABEL) == (job or obj["metadata"]["name"])
    return named and labels.get("app.kubernetes.io/managed-by") == MANAGED_BY


def is_job(jobset: Mapping[str, Any]) -> bool:
    """Return whether `trn` created a JobSet, as above. A member of an array also has its number."""
    labels: Mapping[str, str] = jobset["metadata"].get("labels") or {}
    numbered = ARRAY_LABEL not in labels or re.fullmatch("[0-9]{1,3}", labels.get(MEMBER_LABEL, ""))
    return submitted_by_trn(jobset) and bool(numbered)


def submitted(job: Mapping[str, Any]) -> bool:
    """Return whether a JobSet's submission is complete: it was let into its queue, or waits for others before it."""
    return bool({QUEUE_LABEL, AFTER_LABEL} & (job["metadata"].get("labels") or {}).keys())


def owners(obj: Mapping[str, Any]) -> list[str]:
    """The uids of an object's owners. Unlike names and labels, uids are never reused."""
    return [str(owner.get("uid", "")) for owner in obj["metadata"].get("ownerReferences") or []]


def runner(digest: str) -> str:
    """The name of the ConfigMap with a version of the runner, by the SHA-256 of its file."""
    return f"trn-runner-{digest[:40]}"


def prepare_job(name: str) -> str:
    """The name of the batch Job that fetches what a job needs."""
    return f"{name}-{PREPARE}"


def train_job(name: str) -> str:
    """The name that JobSet gives the batch Job of the training pods."""
    return f"{name}-{TRAIN}-0"


def host(name: str, index: int) -> str:
    """The name by which the other pods of a job find a training pod: JobSet's headless service has the name of the job."""
    return f"{train_job(name)}-{index}.{name}"
