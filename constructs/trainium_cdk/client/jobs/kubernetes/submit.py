"""Sending a job: it exists completely and once, or not at all, whatever happens between.

The JobSet comes first, suspended and in no queue: its name decides which job it is. All else belongs to it from its creation, so that
nothing is left without it. One change of its labels then lets it enter its queue. A client that ends before has left nothing that costs;
if you send it again, it adds the missing parts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainium_cdk.client.jobs.backend import ONE_QUESTION, Patience
from trainium_cdk.client.jobs.kubernetes import look, parts, status
from trainium_cdk.client.jobs.kubernetes.api import Api, Object
from trainium_cdk.client.jobs.kubernetes.objects import Objects
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import ApiError, SubmitError, TransportError, TrnError

_SUBMITTING_SECONDS = 120
"""Seconds after which a JobSet in no queue is of a submission that was broken off: it holds no compile cache."""
_UNUSED_SECONDS = 86_400
"""Seconds for which a runner stays in any case: a submission places it before its JobSet is there."""
_SETTLING_SECONDS = 2.0
"""Seconds after which a sent request has been processed."""


@dataclass(frozen=True)
class Submitter:
    """Sends one rendered job to a cluster."""

    cluster: EksCluster
    api: Api
    plan: Plan
    objects: Objects
    sleep: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        return self.plan.id

    def send(self) -> bool:
        """Send it. Returns whether it was there already.

        Raises:
            SubmitError: the cluster refuses it; nothing of it is left there.
            TransportError: the cluster does not answer. Sent again, it is submitted once.
        """
        try:
            return Patience(ONE_QUESTION).ask(self._send)
        except (KeyboardInterrupt, SystemExit):
            self._broken_off()
            raise

    def _send(self) -> bool:
        first, *others = self.objects.jobs
        try:
            self._place_runner()
            if others and self._was_complete():
                return True
            job = self._create(first)
            if parts.submitted(job):
                return True
            _check(self.api, self.cluster, self.plan)
            labels = {"metadata": {"labels": dict(self.objects.release)}}
            if others and self.plan.fleet.claims:
                self._add_parts([job, *(self._create(one) for one in others)])
                for one in others:
                    self.api.patch("JobSet", _name(one), labels)
            else:
                self._add_parts([job])
                if others:
                    self._add_parts([job, *(self._create(one) for one in others)], there=True)
            self.api.patch("JobSet", self._first, labels)
            return False
        except SubmitError:
            self._undo()
            raise
        except ApiError as e:
            if e.again:
                raise  # it may have been carried out without a response
            self._undo()
            raise SubmitError(
                f"{self.name} was not submitted to {self.cluster.cluster_name}: {_refusal(e)}. Nothing of it is left there"
            ) from None

    @property
    def _first(self) -> str:
        return _name(self.objects.jobs[0])

    def _place_runner(self) -> None:
        """Place the runner once for each version, and compare it: whoever may change it could run programs in all jobs."""
        wanted, there = self.objects.runner, None
        for _ in range(2):
            if there := self.api.find("ConfigMap", _name(wanted)):
                break
            if self._new(wanted):
                self._remove_unused()
                return
        if there is None or there.get("binaryData") != wanted["binaryData"]:
            raise SubmitError(
                f"{self.name} was not submitted: the ConfigMap {_name(wanted)} is not the runner of this version of trn. Delete it"
            )

    def _remove_unused(self) -> None:
        """Remove runners of other versions that no JobSet names. JobSets stay for 14 days, so nobody has submitted with those since."""
        ours = f"app.kubernetes.io/managed-by={parts.MANAGED_BY}"
        with contextlib.suppress(ApiError):  # the caller may not be allowed to
            used = {
                (row["metadata"].get("annotations") or {}).get(parts.RUNNER)
                for row in self.api.table("JobSet", labels=ours)
            }
            for row in self.api.table("ConfigMap", labels=ours) if None not in used else ():
                known = not _name(row).startswith(parts.runner("")) or _name(row) in {*used, _name(self.objects.runner)}
                if not known and _age(row) > _UNUSED_SECONDS:
                    self.api.delete("ConfigMap", _name(row), uid=row["metadata"]["uid"])

    def _create(self, job: Object) -> Object:
        """The existing JobSet. Raises SubmitError if another job has its name."""
        return self._new(job) or self._same(self.api.get("JobSet", _name(job)))

    def _was_complete(self) -> bool:
        """Return whether an array has members but not the first one, which is created first. It ended, or was deleted, and is not run again."""
        there = self._members()
        return bool(there) and self._first not in [_name(self._same(one)) for one in there]

    def _members(self) -> list[Object]:
        return self.api.list("JobSet", labels=f"{parts.ARRAY_LABEL}={self.name}")

    def _new(self, thing: Object) -> Object | None:
        """Create an object; None if there is one of its name."""
        try:
            return self.api.create(kind_of(thing), thing)
        except ApiError as e:
            if e.status != 409:
                raise
            return None

    def _same(self, there: Object) -> Object:
        if there["metadata"].get("annotations", {}).get(parts.DIGEST) != self.objects.digest:
            raise self._another()
        return there

    def _another(self) -> SubmitError:
        return SubmitError(f"{self.name} already exists as another job. Use a new token, or submit the same job")

    def _add_parts(self, owners: Sequence[Object], *, there: bool = False) -> None:
        """Create what belongs to the JobSets, or make all of them its owners, so that it is deleted with the last one."""
        of = [
            {"apiVersion": parts.JOBSET, "kind": "JobSet", "name": _name(one), "uid": one["metadata"]["uid"]}
            for one in owners
        ]
        for part in self.objects.parts:
            if there:
                self.api.patch(kind_of(part), _name(part), {"metadata": {"ownerReferences": of}})
            else:
                owned = {**part, "metadata": {**part["metadata"], "ownerReferences": of}}
                self._put(owned)

    def _put(self, part: Object) -> None:
        """Create a part. One of its name may be there: of the same submission, or left by a JobSet that is deleted."""
        kind, name, owner = kind_of(part), _name(part), part["metadata"]["ownerReferences"][0]
        guards = parts.HOLDER in part["metadata"]["annotations"]
        for _ in range(3):
            if self._new(part):
                return
            if (there := self.api.find(kind, name)) is None:
                continue
            if owner["uid"] in parts.owners(there):
                return
            if guards and (holder := _holder(there)) != self.name:
                self._check_unused(holder)
            elif not guards and not parts.submitted_by_trn(there, self.name):
                raise SubmitError(
                    f"{self.name} was not submitted: a {part['kind']} named {name} already exists, not created by trn. Use another token"
                )
            elif self._has_owner(there):
                raise self._another()
            elif kind == "ResourceClaimTemplate":  # only the API may delete it, and does
                self.sleep(_SETTLING_SECONDS)
                continue
            try:
                self.api.delete(kind, name, uid=there["metadata"]["uid"])
            except ApiError as e:
                if e.status != 409:  # it is another one meanwhile
                    raise
        raise TransportError(f"several submissions request {part['kind']} {name} at once. Try again in a moment")

    def _has_owner(self, there: Object) -> bool:
        """Return whether a JobSet that owns an object still exists. An array and a job with the same id are different owners."""
        for owner in there["metadata"].get("ownerReferences") or []:
            job = self.api.find("JobSet", owner["name"])
            if job and job["metadata"]["uid"] == owner["uid"]:
                return True
        return False

    def _check_unused(self, holder: str) -> None:
        """Raises SubmitError if that job uses the compile cache."""
        if self._uses(holder):
            raise SubmitError(
                f"{self.name} was not submitted: job {holder} uses the compile cache {self.plan.spec.environment.cache}, and two jobs would "
                f"corrupt it. Wait for it (trn status --wait {holder}), cancel it, or give --cache another name"
            )

    def _uses(self, holder: str) -> bool:
        job = self.api.find("JobSet", holder)
        jobs = [job] if job else self.api.list("JobSet", labels=f"{parts.ARRAY_LABEL}={holder}")
        began = [one for one in jobs if parts.submitted(one) or _age(one) < _SUBMITTING_SECONDS]
        seen = look.read_jobs(self.api, began, {}, {})
        return any(not status.status(one).done or status.alive(one.pods) for one in seen)

    def _broken_off(self) -> None:
        """Undo a submission after Ctrl-C: the job then exists completely, or not at all."""
        self.sleep(_SETTLING_SECONDS)
        with contextlib.suppress(TrnError):
            self._undo()

    def _undo(self) -> None:
        """Delete the JobSets of a submission that is not complete; what belongs to them goes with them."""
        first = self.api.find("JobSet", self._first)
        with contextlib.suppress(SubmitError):  # another job, of which nothing may be changed
            if first and not parts.submitted(self._same(first)):
                members = self._members() if parts.array(first) else []
                for one in (*(one for one in members if _name(one) != self._first), first):
                    self.api.delete("JobSet", _name(one), uid=one["metadata"]["uid"])


def kind_of(thing: Object) -> str:
    """The API's name for an object's kind."""
    return "BatchJob" if thing["kind"] == "Job" else str(thing["kind"])


def _holder(guard: Object) -> str:
    return str(guard["metadata"].get("annotations", {}).get(parts.HOLDER, ""))


def _name(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def _age(job: Object) -> float:
    return time.time() - (parts.seconds(job["metadata"].get("creationTimestamp")) or 0)


def _check(api: Api, cluster: EksCluster, plan: Plan) -> None:
    """Check that the queue, the priority class, and the jobs that it continues from or comes after exist.

    Raises:
        SubmitError: one is not; the message says what to write instead.
    """
    where = f"{plan.id} was not submitted to {cluster.cluster_name}"
    try:
        if api.find("LocalQueue", plan.fleet.queue) is None:
            raise SubmitError(
                f"{where}: the namespace {cluster.namespace} has no queue {plan.fleet.queue}. Deploy the stack again"
            )
        if plan.job.priority:
            _priority(api, where, plan.job.priority)
        if plan.job.after:
            _after(api, where, plan.job.after)
        if plan.job.resume_from and not plan.job.resume_from.startswith(("/", "s3://")):
            _source(api, where, plan, plan.job.resume_from)
    except ApiError as e:
        if not _unserved(e):
            raise
        raise SubmitError(f"{where}: the cluster has no Kueue. Turn it on (eks.plugins) and deploy again") from None


def _priority(api: Api, where: str, priority: str) -> None:
    if api.find("PriorityClass", parts.priority_class(priority)) is None:
        known = [found["metadata"]["name"] for found in api.list("PriorityClass")]
        has = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise SubmitError(f"{where}: the cluster has no priority class {priority}; {has}. Choose one of them")


def _after(api: Api, where: str, other: str) -> None:
    name = parts.object_name(other)
    job = api.find("JobSet", name)
    there = [job] if job else api.list("JobSet", labels=f"{parts.ARRAY_LABEL}={name}")
    if not there or not all(map(parts.submitted_by_trn, there)):
        raise SubmitError(f"{where}: there is no job {other} on this cluster. Give another one as --after")
    if any(parts.condition(one, "Failed") for one in there):
        raise SubmitError(
            f"{where}: {other} has not completed, and does not run: this job would never begin. Remove --after, or submit {other} again"
        )


def _source(api: Api, where: str, plan: Plan, source: str) -> None:
    job = api.find("JobSet", parts.object_name(source))  # deleted some time after its end: then `prepare` compares
    if job and (reason := resume_problem(plan, status.described(job))):
        raise SubmitError(f"{where}: {reason}")


def resume_problem(plan: Plan, record: Mapping[str, Any]) -> str:
    """Describe why a job cannot use the checkpoints of the one with this record; empty if it can, by the record. As `runner.prepare.resume`."""
    name, job, there = plan.job.resume_from, plan.job, record.get("checkpoints_of")
    if (kind := str(record.get("kind"))[:40]) != job.kind:
        return f"{name} is a job of kind {kind}, whose checkpoints {job.kind} does not read. Submit the same kind, or name another job"
    for key, value in job.layout(plan).items():
        if isinstance(there, dict) and there.get(key) != value:
            return (
                f"{name} has checkpoints of a job with {key} {str(there.get(key))[:100]}, and this job has {key} {value}, with which they "
                "cannot be read. Submit it with the same"
            )
    return ""


def _refusal(error: ApiError) -> str:
    """The API's reason."""
    if _unserved(error):
        return "the cluster has no JobSet. Turn it on (eks.plugins) and deploy again"
    text = str(error).removesuffix(".")
    if "admission webhook" in text:
        text = text.partition("denied the request: ")[2] or text
    return " ".join(text.split()).rstrip(";")


def _unserved(error: ApiError) -> bool:
    """Return whether the cluster does not know the kind of object at all."""
    return error.status == 404 and "could not find the requested resource" in str(error)
