"""Jobs on an EKS cluster: each operation is a few requests to the Kubernetes API."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import ApiError, JobError, UnknownJob
from trainium_cdk.jobs.backend import Backend, unknown_job
from trainium_cdk.jobs.kubernetes import inside, logs, reader, status, tensorboard
from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.kubernetes.names import (
    JOB_LABEL,
    MANAGED_BY,
    object_name,
    owners,
    submitted_by_trn,
)
from trainium_cdk.jobs.kubernetes.render import KubernetesSubmission, render
from trainium_cdk.jobs.kubernetes.status import Seen
from trainium_cdk.jobs.kubernetes.submit import Submitter, owner_of
from trainium_cdk.jobs.models import AnyJob
from trainium_cdk.jobs.status import JobStatus, LogChunk, Submitted
from trainium_cdk.jobs.submission import new_token
from trainium_cdk.outputs import GROUP_LABEL, EksCluster

Object = dict[str, Any]

_CANCEL_SECONDS = 60


class KubernetesBackend(Backend[KubernetesSubmission]):
    """Jobs of one cluster, through its API.

    Args:
        api: the cluster's API, or a function that creates it on first use.
    """

    ordered_logs = False
    interval = 2.0
    cluster: EksCluster

    def __init__(
        self,
        cluster: EksCluster,
        api: Api | Callable[[], Api],
        *,
        catalog: Catalog | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.cluster = cluster
        self._make = api if callable(api) else lambda: api
        self._catalog, self.sleep = catalog, sleep

    @cached_property
    def api(self) -> Api:
        """The cluster's API.

        Raises:
            TransportError: it cannot be reached.
        """
        return self._make()

    def render(self, job: AnyJob, token: str | None = None) -> KubernetesSubmission:
        return render(job, self.cluster, new_token() if token is None else token, catalog=self._catalog)

    def send(self, submission: KubernetesSubmission) -> Submitted:
        from trainium_cdk.jobs.workdir import deliver

        sent = deliver(submission.plan)
        return replace(Submitter(self.cluster, self.api, self.sleep).send(submission), sent=sent)

    def status(self, id: str) -> JobStatus:
        return status.status(self.seen(id))

    def seen(self, id: str) -> Seen:
        """The job's objects in the cluster. Raises as `status` does."""
        job = self._job(id)
        pods = self.api.list("Pod", labels=f"{JOB_LABEL}={job['metadata']['name']}")
        return self._look(job, [pod for pod in pods if job["metadata"]["uid"] in owners(pod)])

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        found = self.api.list("Job", labels=f"app.kubernetes.io/managed-by={MANAGED_BY}")
        jobs = [job for job in found if submitted_by_trn(job)]
        jobs.sort(key=lambda j: (j["metadata"]["creationTimestamp"], j["metadata"]["name"]), reverse=True)
        pods: dict[str, list[Object]] = {}
        for pod in self.api.list("Pod", labels=f"app.kubernetes.io/managed-by={MANAGED_BY}"):
            for uid in owners(pod):
                pods.setdefault(uid, []).append(pod)
        return tuple(status.status(self._look(j, pods.get(j["metadata"]["uid"], []))) for j in jobs[:limit])

    def active(self) -> tuple[JobStatus, ...]:
        return tuple(job for job in self.list(sys.maxsize) if not job.done)

    def cancel(self, id: str) -> JobStatus:
        job = self._job(id)
        name = job["metadata"]["name"]
        if not status.ended(job):
            owner = owner_of(job)
            self.api.create(
                "Command",
                {
                    "apiVersion": "bus.volcano.sh/v1alpha1",
                    "kind": "Command",
                    "metadata": {
                        "generateName": f"{name}-abort-",
                        "namespace": self.cluster.namespace,
                        "ownerReferences": [owner],
                    },
                    "action": "AbortJob",
                    "target": {**owner, "controller": True},
                    "reason": "Cancelled",
                    "message": "trn cancel",
                },
            )
            end = time.monotonic() + _CANCEL_SECONDS
            while not status.ended(now := self._job(name)) and time.monotonic() < end:
                if now["metadata"]["uid"] != job["metadata"]["uid"]:
                    raise UnknownJob(f"job {id} was deleted meanwhile; a new job has its name, and was not cancelled")
                self.sleep(0.3)
        return self.status(name)

    def run_shared(self, script: str) -> str:
        """Run a script in a pod on a system node; its output.

        Raises:
            TransportError: the pod did not start, or failed.
        """
        return reader.run(self.api, self.cluster, script).decode(errors="replace")

    def logs(
        self,
        id: str,
        *,
        stage: str | None = None,
        node: int | None = None,
        follow: bool = False,
        offset: int = 0,
        changed: Callable[[JobStatus], None] | None = None,
    ) -> Iterator[LogChunk]:
        return logs.read(self, id, stage=stage, node=node, follow=follow, offset=offset, changed=changed)

    def node_of_rank(self, id: str, rank: int) -> int:
        """As the node itself reports it in its log. Arguments and errors as of `Backend.node_of_rank`."""
        return logs.node_of_rank(self, id, rank)

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        pod, container = inside.place(self, id, node)
        return inside.run(self.api, pod, container, command)

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[tensorboard.Board]:
        return tensorboard.serve(self, id, image=image, port=port, say=say)

    def _look(self, job: Object, pods: Sequence[Object]) -> Seen:
        if status.ended(job) or any(p["spec"].get("nodeName") for p in pods if status.task(p) == "train"):
            return Seen(job, pods)
        name = f"{job['metadata']['name']}-{job['metadata']['uid']}"
        group = self.api.find("PodGroup", name)
        events = self.api.list("Event", fields=f"involvedObject.name={name},type=Warning")
        events.sort(key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
        return Seen(job, pods, group, tuple(str(e.get("message", "")) for e in events[-3:]), self._group_nodes(job))

    def _group_nodes(self, job: Object) -> Sequence[Object] | None:
        """The nodes of the job's node group; None if unknown."""
        selectors = (task["template"]["spec"].get("nodeSelector", {}) for task in job["spec"]["tasks"])
        group = next((selector[GROUP_LABEL] for selector in selectors if selector.get(GROUP_LABEL)), None)
        with contextlib.suppress(ApiError):  # the caller may not be allowed to list nodes
            return self.api.list("Node", labels=f"{GROUP_LABEL}={group}") if group else None
        return None

    def _job(self, id: str) -> Object:
        """A job that `trn` has submitted. Volcano may have others, under any name."""
        try:
            found = self.api.find("Job", object_name(id))
        except JobError:
            found = None
        if found is None or not submitted_by_trn(found):
            raise unknown_job(id, self.cluster)
        return found
