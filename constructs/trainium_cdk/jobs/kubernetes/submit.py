"""Sending a job: its objects are created completely and once, or not at all."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainium_cdk.errors import ApiError, SubmitError, TransportError, TrnError
from trainium_cdk.jobs import checkpoints
from trainium_cdk.jobs.kubernetes import look, names, status
from trainium_cdk.jobs.kubernetes.api import Api, Object, absent_is_fine
from trainium_cdk.jobs.kubernetes.names import (
    ARRAY_LABEL,
    DIGEST,
    HOLDER,
    JOBSET,
    object_name,
    owners,
    priority_class,
    submitted_by_trn,
)
from trainium_cdk.jobs.kubernetes.render import KubernetesSubmission
from trainium_cdk.jobs.patience import ONE_QUESTION, Patience
from trainium_cdk.jobs.status import Submitted
from trainium_cdk.outputs import EksCluster

_SUBMITTING_SECONDS = 120
_SETTLING_SECONDS = 2.0
"""Seconds after which a sent request has been processed."""


@dataclass(frozen=True)
class Submitter:
    """Sends jobs to one cluster."""

    cluster: EksCluster
    api: Api
    sleep: Callable[[float], None]

    def send(self, submission: KubernetesSubmission) -> Submitted:
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

    def _send(self, submission: KubernetesSubmission) -> Submitted:
        there = self._existing(submission)
        if there and (len(there) == len(submission.jobs) or self._was_complete(submission)):
            self._own(submission, there)
            return self._submitted(submission, existing=True)
        self._check(submission)
        self._take_cache(submission)
        try:
            for thing in submission.parts:
                self._put(thing, submission)
            made = [self._create(job, there, submission) for job in submission.jobs]
        except SubmitError:
            self._undo(submission)
            raise
        except ApiError as e:
            if e.again:
                raise  # the job may have been created without a response: its files must be kept
            self._undo(submission)
            raise SubmitError(
                f"{submission.id} was not submitted to {self.cluster.cluster_name}: {_refusal(e)}. Nothing of it is left there"
            ) from None
        self._own(submission, [job for job, _ in made])
        return self._submitted(submission, existing=not any(new for _, new in made))

    def _create(self, job: Object, there: Sequence[Object], submission: KubernetesSubmission) -> tuple[Object, bool]:
        """Create a JobSet, unless it exists; and whether it is new. An interrupted submission may have left some members of an array."""
        name = job["metadata"]["name"]
        if found := next((one for one in there if one["metadata"]["name"] == name), None):
            return found, False
        try:
            return self.api.create("JobSet", job), True
        except ApiError as e:
            if e.status != 409:
                raise
            return self._same(self.api.get("JobSet", name), submission), False  # another client created it first

    def _broken_off(self, submission: KubernetesSubmission) -> None:
        """After Ctrl-C the job exists completely, or not at all."""
        self.sleep(_SETTLING_SECONDS)
        with contextlib.suppress(TrnError):
            there = self._existing(submission)
            if len(there) == len(submission.jobs):
                self._own(submission, there)
            else:
                self._undo(submission)

    def _existing(self, submission: KubernetesSubmission) -> list[Object]:
        """The submission's JobSets that exist. Raises SubmitError if its id is that of another job."""
        found = []
        try:
            found.append(self.api.get("JobSet", submission.id))
        except ApiError as e:
            if e.status != 404 or _unserved(e):
                raise
        if len(submission.jobs) > 1 or submission.plan.job.array:
            found += self.api.list("JobSet", labels=f"{ARRAY_LABEL}={submission.id}")
        return [self._same(one, submission) for one in found]

    def _same(self, found: Object, submission: KubernetesSubmission) -> Object:
        if found["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            raise self._is_another(submission)
        return found

    def _is_another(self, submission: KubernetesSubmission) -> SubmitError:
        return SubmitError(f"{submission.id} already exists as another job. Use a new token, or submit the same job")

    def _was_complete(self, submission: KubernetesSubmission) -> bool:
        """Whether all JobSets of a submission had been created: members of an array that ended long ago are deleted before others."""
        secret = self.api.find("Secret", submission.secret["metadata"]["name"])
        return secret is not None and bool(owners(self._same(secret, submission)))

    def _take_cache(self, submission: KubernetesSubmission) -> None:
        """Reserve the compile cache for this job. Raises SubmitError if another job uses it."""
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
                    f"{submission.id} was not submitted: job {holder} uses the compile cache {submission.plan.job.cache_set}, and two "
                    f"jobs would corrupt it. Wait for it (trn status --wait {holder}), cancel it, or give --cache another name"
                )
            # a new object, and not a changed one, whose age would not be that of this submission
            try:
                self.api.delete("ConfigMap", there["metadata"]["name"], uid=there["metadata"]["uid"])
            except ApiError as e:
                if e.status != 409:
                    raise
        raise TransportError(
            f"several submissions request the compile cache {submission.plan.job.cache_set} at once. Try again in a moment"
        )

    def _still_has(self, holder: str, guard: Object) -> bool:
        job = self.api.find("JobSet", holder)
        if jobs := [job] if job else self.api.list("JobSet", labels=f"{ARRAY_LABEL}={holder}"):
            seen = look.at(self.api, jobs, {}, {})
            return any(not status.status(one).done or status.alive(one.pods) for one in seen)
        if guard["metadata"].get("ownerReferences"):
            return False
        # no job yet: its submission is under way, or was interrupted
        age = dt.datetime.now(dt.UTC).timestamp() - (status.seconds(guard["metadata"]["creationTimestamp"]) or 0)
        return age < _SUBMITTING_SECONDS

    def _check(self, submission: KubernetesSubmission) -> None:
        """Check that the queue, the priority class and the job before it exist: without them the job would wait for ever."""
        queue, priority = submission.plan.fleet.queue, submission.plan.job.priority
        where = f"{submission.id} was not submitted to {self.cluster.cluster_name}"
        try:
            if self.api.find("LocalQueue", queue) is None:
                raise SubmitError(
                    f"{where}: the namespace {self.cluster.namespace} has no queue {queue}. Deploy the stack again"
                )
            if priority and self.api.find("PriorityClass", priority_class(priority)) is None:
                known = [found["metadata"]["name"] for found in self.api.list("PriorityClass")]
                has = f"it has {', '.join(sorted(known))}" if known else "it has none"
                raise SubmitError(f"{where}: the cluster has no priority class {priority}; {has}. Choose one of them")
            if other := submission.plan.job.after:
                name = object_name(other)
                job = self.api.find("JobSet", name)
                there = [job] if job else self.api.list("JobSet", labels=f"{ARRAY_LABEL}={name}")
                if not there or not all(map(submitted_by_trn, there)):
                    raise SubmitError(f"{where}: there is no job {other} on this cluster. Give another one as --after")
                if any(names.condition(one, "Failed") for one in there):
                    raise SubmitError(
                        f"{where}: {other} has not completed, and does not run: this job would never begin. Remove --after, or submit "
                        f"{other} again"
                    )
            if (source := submission.plan.job.resume_from) and not source.startswith("/"):
                job = self.api.find(
                    "JobSet", object_name(source)
                )  # deleted some time after its end: then `prepare` compares
                if job and (reason := checkpoints.problem(submission.plan, status.described(job))):
                    raise SubmitError(f"{where}: {reason}")
        except ApiError as e:
            if _unserved(e):
                raise SubmitError(
                    f"{where}: the cluster has no Kueue. Turn it on (eks.plugins) and deploy again"
                ) from None
            raise

    def _put(self, thing: Object, submission: KubernetesSubmission) -> None:
        """Create a part of the job. One with its name may have been left by an interrupted submission."""
        kind, name = kind_of(thing), thing["metadata"]["name"]
        try:
            self.api.create(kind, thing)
            return
        except ApiError as e:
            if e.status != 409:
                raise
        there = self.api.get(kind, name)
        if not submitted_by_trn(there, submission.id):
            raise SubmitError(
                f"{submission.id} was not submitted: a {thing['kind']} named {name} already exists, not created by trn. Use another token"
            )
        if there["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            if owners(there):  # and is no part of an interrupted submission
                raise self._is_another(submission)
            self.api.delete(kind, name, uid=there["metadata"]["uid"])
            self.api.create(kind, thing)

    def _own(self, submission: KubernetesSubmission, jobs: Sequence[Object]) -> None:
        """Make the JobSets the owners of their parts, so that they are deleted with the last one."""
        uids = {job["metadata"]["uid"]: job["metadata"]["name"] for job in jobs}
        new = [{"apiVersion": JOBSET, "kind": "JobSet", "name": name, "uid": uid} for uid, name in uids.items()]
        for kind, name, there in self._parts(submission):
            if not uids.keys() <= set(owners(there)):
                with absent_is_fine():
                    self.api.patch(kind, name, {"metadata": {"ownerReferences": new}})

    def _undo(self, submission: KubernetesSubmission) -> None:
        if submission.plan.job.array:
            for job in self._existing(submission):
                self.api.delete("JobSet", job["metadata"]["name"], uid=job["metadata"]["uid"])
        for kind, name, there in self._parts(submission):
            self.api.delete(kind, name, uid=there["metadata"]["uid"])

    def _parts(self, submission: KubernetesSubmission) -> Iterator[tuple[str, str, Object]]:
        """The parts of this submission that exist: kind, name, object."""
        for thing in (*submission.parts, submission.guard):
            kind, name = kind_of(thing), thing["metadata"]["name"]
            there = self.api.find(kind, name)
            if there is None:
                continue
            annotations = there["metadata"].get("annotations", {})
            mine = submitted_by_trn(there, submission.id) and annotations.get(DIGEST) == submission.digest
            if annotations.get(HOLDER) == submission.id if thing is submission.guard else mine:
                yield kind, name, there

    def _submitted(self, submission: KubernetesSubmission, *, existing: bool) -> Submitted:
        stages = {str(stage): f"{submission.id}/{stage}" for stage in submission.plan.stages}
        return Submitted(submission.id, existing, stages, submission.directory)


def kind_of(thing: Object) -> str:
    """The API's name for an object's kind."""
    return "BatchJob" if thing["kind"] == "Job" else str(thing["kind"])


def _unserved(error: ApiError) -> bool:
    """Whether the cluster does not know the kind of object at all."""
    return error.status == 404 and "could not find the requested resource" in str(error)


def _refusal(error: ApiError) -> str:
    """The API's reason."""
    text = str(error).removesuffix(".")
    if "admission webhook" in text:
        text = text.partition("denied the request: ")[2] or text
    return (
        "the cluster has no JobSet. Turn it on (eks.plugins) and deploy again"
        if _unserved(error)
        else " ".join(text.split()).rstrip(";")
    )
