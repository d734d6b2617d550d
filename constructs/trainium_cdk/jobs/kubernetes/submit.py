"""Sending a job: its objects are created completely and once, or not at all."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from trainium_cdk.errors import ApiError, SubmitError, TransportError, TrnError
from trainium_cdk.jobs.kubernetes import status
from trainium_cdk.jobs.kubernetes.api import Api, Object, absent_is_fine
from trainium_cdk.jobs.kubernetes.names import DIGEST, HOLDER, VOLCANO, submitted_by_trn
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
                self._own(submission, there)  # another client created it first
                return self._submitted(submission, existing=True)
            if e.again:
                raise  # the job may have been created without a response: its files must be kept
            self._undo(submission)
            raise SubmitError(
                f"{submission.id} was not submitted to {self.cluster.cluster_name}: {_refusal(e)}. Nothing of it is left there"
            ) from None
        self._own(submission, made)
        return self._submitted(submission, existing=False)

    def _broken_off(self, submission: KubernetesSubmission) -> None:
        """After Ctrl-C the job exists completely, or not at all."""
        self.sleep(_SETTLING_SECONDS)
        with contextlib.suppress(TrnError):
            there = self._existing(submission)
            if there is None:
                self._undo(submission)
            else:
                self._own(submission, there)

    def _existing(self, submission: KubernetesSubmission) -> Object | None:
        try:
            found = self.api.get("Job", submission.id)
        except ApiError as e:
            if e.status == 404:
                return None
            raise
        if found["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            raise SubmitError(f"{submission.id} already exists as another job. Use a new token, or submit the same job")
        return found

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
                    f"jobs would corrupt it. Wait for it (trn wait {holder}), cancel it, or give --cache another name"
                )
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            try:
                self.api.replace("ConfigMap", {**wanted, "metadata": {**wanted["metadata"], **version}})
                return
            except ApiError as e:
                if e.status not in (404, 409):
                    raise
        raise TransportError(
            f"several submissions request the compile cache {submission.plan.job.cache_set} at once. Try again in a moment"
        )

    def _still_has(self, holder: str, guard: Object) -> bool:
        try:
            return not status.ended(self.api.get("Job", holder))
        except ApiError as e:
            if e.status != 404:
                raise
        if guard["metadata"].get("ownerReferences"):
            return False
        # no job yet: its submission is under way, or was interrupted
        age = dt.datetime.now(dt.UTC).timestamp() - (status.seconds(guard["metadata"]["creationTimestamp"]) or 0)
        return age < _SUBMITTING_SECONDS

    def _put_files(self, submission: KubernetesSubmission) -> None:
        name = submission.id
        try:
            self.api.create("Secret", submission.secret)
            return
        except ApiError as e:
            if e.status != 409:
                raise
        # left by an interrupted submission
        there = self.api.get("Secret", name)
        if not submitted_by_trn(there):
            raise SubmitError(
                f"{name} was not submitted: a Secret of that name already exists, not created by trn. Use another token"
            )
        if there["metadata"].get("annotations", {}).get(DIGEST) != submission.digest:
            self.api.delete("Secret", name, uid=there["metadata"]["uid"])
            self.api.create("Secret", submission.secret)

    def _own(self, submission: KubernetesSubmission, job: Object) -> None:
        """Make the job the owner of files and guard, so that they are deleted with it."""
        owned = {"metadata": {"ownerReferences": [owner_of(job)]}}
        with absent_is_fine():
            self.api.patch("Secret", submission.id, owned)
        name = submission.guard["metadata"]["name"]
        with absent_is_fine():
            guard = self.api.get("ConfigMap", name)
            if guard["metadata"].get("annotations", {}).get(HOLDER) == submission.id:
                self.api.patch("ConfigMap", name, owned)

    def _undo(self, submission: KubernetesSubmission) -> None:
        with absent_is_fine():
            files = self.api.get("Secret", submission.id)
            if submitted_by_trn(files) and files["metadata"].get("annotations", {}).get(DIGEST) == submission.digest:
                self.api.delete("Secret", submission.id, uid=files["metadata"]["uid"])
        name = submission.guard["metadata"]["name"]
        with absent_is_fine():
            guard = self.api.get("ConfigMap", name)
            if guard["metadata"].get("annotations", {}).get(HOLDER) == submission.id:
                self.api.delete("ConfigMap", name, uid=guard["metadata"]["uid"])

    def _submitted(self, submission: KubernetesSubmission, *, existing: bool) -> Submitted:
        stages = {str(stage): f"{submission.id}/{stage}" for stage in submission.plan.stages}
        return Submitted(submission.id, existing, stages, submission.directory)


def owner_of(job: Object) -> Object:
    return {"apiVersion": VOLCANO, "kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}


def _refusal(error: ApiError) -> str:
    """The API's reason, made clear for an unknown queue or namespace."""
    text = str(error).removesuffix(".")
    if "admission webhook" in text:
        text = text.partition("denied the request: ")[2] or text
    if error.status == 404 and "could not find the requested resource" in text:
        return "the cluster has no Volcano. Turn it on (eks.plugins.volcano) and deploy again"
    return " ".join(text.split()).rstrip(";")
