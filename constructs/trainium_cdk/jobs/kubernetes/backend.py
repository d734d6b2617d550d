"""Jobs on an EKS cluster: each operation is a few requests to the Kubernetes API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import ApiError, JobError, UnknownJob
from trainium_cdk.jobs.backend import wait
from trainium_cdk.jobs.kubernetes import inside, logs, status, tensorboard
from trainium_cdk.jobs.kubernetes.api import Api, absent_is_fine
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

INTERVAL = 2.0
"""Seconds between two requests."""
_CANCEL_SECONDS = 60


class KubernetesBackend:
    """Jobs of one cluster, through its API. A job's handle is its id; nothing is stored on this machine.

    Args:
        api: the cluster's API, or a function that creates it on first use.
    """

    ordered_logs = False

    def __init__(
        self,
        cluster: EksCluster,
        api: Api | Callable[[], Api],
        *,
        catalog: Catalog | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.cluster = cluster
        self._api: Api | None = api if isinstance(api, Api) else None
        self._make = api if callable(api) else None
        self._catalog, self._sleep = catalog, sleep

    @property
    def api(self) -> Api:
        """The cluster's API.

        Raises:
            TransportError: it cannot be reached.
        """
        if self._api is None:
            assert self._make is not None  # noqa: S101
            self._api = self._make()
        return self._api

    def render(self, job: AnyJob, token: str | None = None) -> KubernetesSubmission:
        """What `submit` would send.

        Raises:
            JobError: the job does not fit the cluster.
        """
        return render(job, self.cluster, new_token() if token is None else token, catalog=self._catalog)

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted:
        """Submit a job. Repeated with the same token, it is submitted once.

        Raises:
            JobError: the job does not fit the cluster; nothing was sent.
            SubmitError: the cluster rejected it, or another job uses its compile cache; nothing was created.
            TransportError: the cluster cannot be reached, or did not respond. The job may exist: submit it again with
                the same token.
        """
        return self.send(self.render(job, token))

    def send(self, submission: KubernetesSubmission) -> Submitted:
        """Send a rendered submission. Raises as `submit` does."""
        return Submitter(self.cluster, self.api, self._sleep).send(submission)

    def status(self, id: str) -> JobStatus:
        """The status of a job.

        Raises:
            UnknownJob, TransportError
        """
        return status.status(self.seen(id))

    def seen(self, id: str) -> Seen:
        """The job's objects in the cluster. Raises as `status` does."""
        job = self._job(id)
        pods = self.api.list("Pod", labels=f"{JOB_LABEL}={job['metadata']['name']}")
        return self._look(job, [pod for pod in pods if job["metadata"]["uid"] in owners(pod)])

    def list(self, limit: int = 50) -> tuple[JobStatus, ...]:
        """The newest jobs, newest first."""
        found = self.api.list("Job", labels=f"app.kubernetes.io/managed-by={MANAGED_BY}")
        jobs = [job for job in found if submitted_by_trn(job)]
        jobs.sort(key=lambda j: (j["metadata"]["creationTimestamp"], j["metadata"]["name"]), reverse=True)
        pods: dict[str, list[Object]] = {}
        for pod in self.api.list("Pod", labels=f"app.kubernetes.io/managed-by={MANAGED_BY}"):
            for uid in owners(pod):
                pods.setdefault(uid, []).append(pod)
        return tuple(status.status(self._look(j, pods.get(j["metadata"]["uid"], []))) for j in jobs[:limit])

    def active(self) -> tuple[JobStatus, ...]:
        """The jobs that run or wait."""
        return tuple(job for job in self.list(sys.maxsize) if not job.done)

    def cancel(self, id: str) -> JobStatus:
        """Cancel a job, and return its status. A job that has ended is not changed.

        Raises:
            UnknownJob, TransportError
        """
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
                self._sleep(0.3)
        return self.status(name)

    def wait(
        self, id: str, timeout: float | None = None, changed: Callable[[JobStatus], None] | None = None
    ) -> JobStatus:
        """Wait until a job has ended.

        Args:
            timeout: seconds; None for no limit.
            changed: called with the status whenever a stage has changed.

        Raises:
            JobTimeout: it has not ended within `timeout`.
            UnknownJob, TransportError
        """
        return wait(self, id, timeout, changed, interval=INTERVAL, sleep=self._sleep)

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
        """The log of a stage, in pieces.

        Args:
            stage: prepare, precompile or train. Default: the last one that has a log; with `follow` all, one after
                another.
            node: only the output of this node (0, 1, ...). Default: all, each line prefixed with its node.
            follow: go on until the stage has ended, over restarts.
            offset: byte to begin at; with one node only, as lines of several nodes have no fixed order.
            changed: called with the status whenever it has changed, while following.

        Raises:
            JobError: the job has no such stage or node.
            UnknownJob, TransportError
        """
        return logs.read(self, id, stage=stage, node=node, follow=follow, offset=offset, changed=changed)

    def node_of_rank(self, id: str, rank: int) -> int:
        """The node on which a training process runs, as the node reports it in its log.

        Raises:
            JobError: the job has no such rank, or has not begun.
            UnknownJob, TransportError
        """
        return logs.node_of_rank(self, id, rank)

    def execute(self, id: str, node: int, command: Sequence[str]) -> int:
        """Run a command in the pod of one of the job's nodes, with this terminal; its exit code.

        Raises:
            JobError: the job has no such node, or it does not run.
            UnknownJob, TransportError
        """
        pod, container = inside.place(self, id, node)
        return inside.run(self.api, pod, container, command)

    def tensorboard(
        self, id: str, *, image: str | None = None, port: int = 0, say: Callable[[str], None] = print
    ) -> AbstractContextManager[tensorboard.Board]:
        """Serve the job's TensorBoard at a port of this machine, from a separate pod.

        Args:
            image: an image with TensorBoard. Default: the job's.
            port: default: a free one.
        """
        return tensorboard.serve(self, id, image=image, port=port, say=say)

    def _look(self, job: Object, pods: Sequence[Object]) -> Seen:
        if status.ended(job) or any(p["spec"].get("nodeName") for p in pods if status.task(p) == "train"):
            return Seen(job, pods)
        name = f"{job['metadata']['name']}-{job['metadata']['uid']}"
        group: Object | None = None
        with absent_is_fine():
            group = self.api.get("PodGroup", name)
        events = self.api.list("Event", fields=f"involvedObject.name={name},type=Warning")
        events.sort(key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
        return Seen(job, pods, group, tuple(str(e.get("message", "")) for e in events[-3:]), self._group_nodes(job))

    def _group_nodes(self, job: Object) -> Sequence[Object] | None:
        """The nodes of the job's node group; None if unknown."""
        for task in job["spec"]["tasks"]:
            group = task["template"]["spec"].get("nodeSelector", {}).get(GROUP_LABEL)
            if group:
                break
        else:
            return None
        try:
            return self.api.list("Node", labels=f"{GROUP_LABEL}={group}")
        except ApiError:
            return None  # the caller may not be allowed to list nodes

    def _job(self, id: str) -> Object:
        """A job that `trn` has submitted. Volcano may have others, under any name."""
        found: Object | None = None
        try:
            found = self.api.get("Job", object_name(id))
        except (ApiError, JobError) as e:
            if isinstance(e, ApiError) and e.status != 404:
                raise
        if found is None or not submitted_by_trn(found):
            raise UnknownJob(
                f"there is no job {id!r} on {self.cluster.cluster_name} ({self.cluster.stack}). `trn list` shows the existing jobs"
            )
        return found
