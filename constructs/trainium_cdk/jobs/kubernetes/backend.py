"""Jobs on an EKS cluster: the verbs, each a few requests to the Kubernetes API."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import ApiError, JobError, SubmitError, TransportError, TrnError, UnknownJob
from trainium_cdk.jobs.backend import JobStatus, LogChunk, Submitted, wait
from trainium_cdk.jobs.kubernetes import logs, status
from trainium_cdk.jobs.kubernetes.api import Api, absent_is_fine
from trainium_cdk.jobs.kubernetes.names import (
    DIGEST,
    HOLDER,
    JOB_LABEL,
    MANAGED_BY,
    VOLCANO,
    object_name,
    owners,
    submitted_by_trn,
)
from trainium_cdk.jobs.kubernetes.render import Submission, render
from trainium_cdk.jobs.kubernetes.status import Seen
from trainium_cdk.jobs.models import AnyJob
from trainium_cdk.jobs.patience import ONE_QUESTION, Patience
from trainium_cdk.jobs.slurm import new_token
from trainium_cdk.outputs import GROUP_LABEL, EksCluster

Object = dict[str, Any]

INTERVAL = 2.0
"""Seconds between two looks."""
_SUBMITTING_SECONDS = 120
_CANCEL_SECONDS = 60
_SETTLING_SECONDS = 2.0
"""After which a request that was sent has been carried out."""


class KubernetesBackend:
    """Jobs of one cluster, through its API. A handle is the job's id: it needs nothing kept on this side.

    Args:
        api: the cluster's API, or what makes it when it is first needed.
    """

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

    def render(self, job: AnyJob, token: str | None = None) -> Submission:
        """What `submit` would send.

        Raises:
            JobError: the job does not fit the cluster.
        """
        return render(job, self.cluster, token or new_token(), catalog=self._catalog)

    def submit(self, job: AnyJob, token: str | None = None) -> Submitted:
        """Submit a job; once for a token, however often it is asked.

        Raises:
            JobError: the job does not fit the cluster; nothing was sent.
            SubmitError: the cluster refused it, or another job has its compile cache; nothing is left behind.
            TransportError: the cluster cannot be reached, or did not answer. It may have taken the job: ask again with the
                same token.
        """
        return self.send(self.render(job, token))

    def send(self, submission: Submission) -> Submitted:
        """Send what was rendered. Raises as `submit` does."""
        patience = Patience(ONE_QUESTION)
        try:
            while True:
                try:
                    return self._send(submission)
                except TransportError as e:
                    patience.failed(e)
        except (KeyboardInterrupt, SystemExit):
            self._broken_off(submission)
            raise

    def _send(self, submission: Submission) -> Submitted:
        there = self._existing(submission)
        if there is not None:
            self._own(submission, there)
            return self._submitted(submission, existing=True)
        self._take_cache(submission)
        try:
            self._put_files(submission)
            made = self.api.create("Job", submission.job)
        except SubmitError:
            self._undo(submission)
            raise
        except ApiError as e:
            if e.status == 409 and (there := self._existing(submission)) is not None:
                self._own(submission, there)  # another client was faster
                return self._submitted(submission, existing=True)
            if e.again:
                raise  # it may have been taken, though nobody has said so: its files must stay
            self._undo(submission)
            raise SubmitError(
                f"{submission.id} was not submitted to {self.cluster.cluster_name}: {_refusal(e)}. Nothing of it is left there"
            ) from None
        self._own(submission, made)
        return self._submitted(submission, existing=False)

    def _broken_off(self, submission: Submission) -> None:
        """After Ctrl-C the job is there whole, or not at all."""
        self._sleep(_SETTLING_SECONDS)
        with contextlib.suppress(TrnError):
            there = self._existing(submission)
            if there is None:
                self._undo(submission)
            else:
                self._own(submission, there)

    def status(self, id: str) -> JobStatus:
        """How a job is.

        Raises:
            UnknownJob, TransportError
        """
        return status.status(self.seen(id))

    def seen(self, id: str) -> Seen:
        """What the cluster knows of a job. Raises as `status` does."""
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
        """Cancel a job, and return how it is then. One that has ended stays as it was.

        Raises:
            UnknownJob, TransportError
        """
        job = self._job(id)
        name = job["metadata"]["name"]
        if not status.ended(job):
            owner = _owner(job)
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
                    raise UnknownJob(f"job {id} was deleted meanwhile; the one that has its name now is left alone")
                self._sleep(0.3)
        return self.status(name)

    def wait(
        self, id: str, timeout: float | None = None, changed: Callable[[JobStatus], None] | None = None
    ) -> JobStatus:
        """Wait until a job has ended.

        Args:
            timeout: seconds; None for as long as it takes.
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
            node: only what this node (0, 1, ...) said. Default: all of them, each line with its node in front.
            follow: go on until the stage has ended, over restarts.
            offset: where to begin; with one node only, for lines of several come in no order of their own.
            changed: called with the status whenever it has changed, while following.

        Raises:
            JobError: the job has no such stage or node.
            UnknownJob, TransportError
        """
        return logs.read(self, id, stage=stage, node=node, follow=follow, offset=offset, changed=changed)

    def node_of_rank(self, id: str, rank: int) -> int:
        """The node on which a process of the training is, as the node itself says in its log.

        Raises:
            JobError: the job has no such rank, or has not begun.
            UnknownJob, TransportError
        """
        return logs.node_of_rank(self, id, rank)

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
        """The nodes of the node group the job is for."""
        for task in job["spec"]["tasks"]:
            group = task["template"]["spec"].get("nodeSelector", {}).get(GROUP_LABEL)
            if group:
                break
        else:
            return None
        try:
            return self.api.list("Node", labels=f"{GROUP_LABEL}={group}")
        except ApiError:
            return None  # not everybody may look at nodes

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
                f"there is no job {id!r} on {self.cluster.cluster_name} ({self.cluster.stack}). `trn list` shows those there are"
            )
        return found

    def _existing(self, submission: Submission) -> Object | None:
        try:
            found = self.api.get("Job", submission.id)
        except ApiError as e:
            if e.status == 404:
                return None
            raise
        if found["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            raise SubmitError(f"{submission.id} is another job already. Use a new token, or submit what it was")
        return found

    def _take_cache(self, submission: Submission) -> None:
        """Hold the compile cache for this job, or say which job has it."""
        wanted = submission.guard
        for _ in range(3):
            try:
                self.api.create("ConfigMap", wanted)
                return
            except ApiError as e:
                if e.status != 409:
                    raise
            try:
                there = self.api.get("ConfigMap", wanted["metadata"]["name"])
            except ApiError as e:
                if e.status == 404:
                    continue
                raise
            holder = str(there["metadata"].get("annotations", {}).get(HOLDER, ""))
            if holder == submission.id:
                return
            if self._still_has(holder, there):
                raise SubmitError(
                    f"{submission.id} was not submitted: job {holder} has the compile cache {submission.plan.job.cache_set}, and two "
                    f"jobs on one would spoil it. Wait for it (trn wait {holder}), cancel it, or give --cache another name"
                )
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            try:
                self.api.replace("ConfigMap", {**wanted, "metadata": {**wanted["metadata"], **version}})
                return
            except ApiError as e:
                if e.status not in (404, 409):
                    raise
        raise TransportError(
            f"several submissions want the compile cache {submission.plan.job.cache_set} at once. Try again in a moment"
        )

    def _still_has(self, holder: str, guard: Object) -> bool:
        try:
            return not status.ended(self.api.get("Job", holder))
        except ApiError as e:
            if e.status != 404:
                raise
        if guard["metadata"].get("ownerReferences"):
            return False
        # no job yet: its submission is under way, or broke off
        age = dt.datetime.now(dt.UTC).timestamp() - (status.seconds(guard["metadata"]["creationTimestamp"]) or 0)
        return age < _SUBMITTING_SECONDS

    def _put_files(self, submission: Submission) -> None:
        name = submission.id
        try:
            self.api.create("Secret", submission.secret)
            return
        except ApiError as e:
            if e.status != 409:
                raise
        # left by a submission that broke off
        there = self.api.get("Secret", name)
        if not submitted_by_trn(there):
            raise SubmitError(
                f"{name} was not submitted: there is a Secret of that name already, which trn has not created. Use another token"
            )
        if there["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            self.api.delete("Secret", name, uid=there["metadata"]["uid"])
            self.api.create("Secret", submission.secret)

    def _own(self, submission: Submission, job: Object) -> None:
        """Tie the files and the guard to the job, so that they go with it."""
        owned = {"metadata": {"ownerReferences": [_owner(job)]}}
        with absent_is_fine():
            self.api.patch("Secret", submission.id, owned)
        name = submission.guard["metadata"]["name"]
        with absent_is_fine():
            guard = self.api.get("ConfigMap", name)
            if guard["metadata"].get("annotations", {}).get(HOLDER) == submission.id:
                self.api.patch("ConfigMap", name, owned)

    def _undo(self, submission: Submission) -> None:
        with absent_is_fine():
            files = self.api.get("Secret", submission.id)
            if submitted_by_trn(files) and files["metadata"].get("annotations", {}).get(DIGEST) == submission.digest:
                self.api.delete("Secret", submission.id, uid=files["metadata"]["uid"])
        name = submission.guard["metadata"]["name"]
        with absent_is_fine():
            guard = self.api.get("ConfigMap", name)
            if guard["metadata"].get("annotations", {}).get(HOLDER) == submission.id:
                self.api.delete("ConfigMap", name, uid=guard["metadata"]["uid"])

    def _submitted(self, submission: Submission, *, existing: bool) -> Submitted:
        stages = {str(stage): f"{submission.id}/{stage}" for stage in submission.plan.stages}
        return Submitted(submission.id, existing, stages, submission.directory)


def _owner(job: Object) -> Object:
    return {"apiVersion": VOLCANO, "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def _refusal(error: ApiError) -> str:
    """What the API said, in which an unknown queue or namespace is told as such."""
    text = str(error).removesuffix(".")
    if "admission webhook" in text:
        text = text.partition("denied the request: ")[2] or text
    if error.status == 404 and "could not find the requested resource" in text:
        return "the cluster has no Volcano. Turn it on (eks.plugins.volcano) and deploy again"
    return " ".join(text.split()).rstrip(";")
