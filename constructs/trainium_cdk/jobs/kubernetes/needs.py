"""What a submission needs of a cluster, without which its job would wait for ever; and what the cluster's refusals mean."""

from __future__ import annotations

from trainium_cdk.errors import ApiError, SubmitError
from trainium_cdk.jobs import checkpoints
from trainium_cdk.jobs.kubernetes import names, status
from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.models import Plan
from trainium_cdk.outputs import EksCluster


def check(api: Api, cluster: EksCluster, name: str, plan: Plan) -> None:
    """Check that the queue, the priority class, and the jobs that it goes on from or comes after are there.

    Raises:
        SubmitError: one is not; the message says what to write instead.
    """
    where = f"{name} was not submitted to {cluster.cluster_name}"
    try:
        if api.find("LocalQueue", plan.fleet.queue) is None:
            raise SubmitError(
                f"{where}: the namespace {cluster.namespace} has no queue {plan.fleet.queue}. Deploy the stack again"
            )
        if plan.job.priority:
            _priority(api, where, plan.job.priority)
        if plan.job.after:
            _after(api, where, plan.job.after)
        if plan.job.resume_from and not plan.job.resume_from.startswith("/"):
            _source(api, where, plan, plan.job.resume_from)
    except ApiError as e:
        if not _unserved(e):
            raise
        raise SubmitError(f"{where}: the cluster has no Kueue. Turn it on (eks.plugins) and deploy again") from None


def _priority(api: Api, where: str, priority: str) -> None:
    if api.find("PriorityClass", names.priority_class(priority)) is None:
        known = [found["metadata"]["name"] for found in api.list("PriorityClass")]
        has = f"it has {', '.join(sorted(known))}" if known else "it has none"
        raise SubmitError(f"{where}: the cluster has no priority class {priority}; {has}. Choose one of them")


def _after(api: Api, where: str, other: str) -> None:
    name = names.object_name(other)
    job = api.find("JobSet", name)
    there = [job] if job else api.list("JobSet", labels=f"{names.ARRAY_LABEL}={name}")
    if not there or not all(map(names.submitted_by_trn, there)):
        raise SubmitError(f"{where}: there is no job {other} on this cluster. Give another one as --after")
    if any(names.condition(one, "Failed") for one in there):
        raise SubmitError(
            f"{where}: {other} has not completed, and does not run: this job would never begin. Remove --after, or submit {other} again"
        )


def _source(api: Api, where: str, plan: Plan, source: str) -> None:
    job = api.find("JobSet", names.object_name(source))  # deleted some time after its end: then `prepare` compares
    if job and (reason := checkpoints.problem(plan, status.described(job))):
        raise SubmitError(f"{where}: {reason}")


def refusal(error: ApiError) -> str:
    """The API's reason."""
    if _unserved(error):
        return "the cluster has no JobSet. Turn it on (eks.plugins) and deploy again"
    text = str(error).removesuffix(".")
    if "admission webhook" in text:
        text = text.partition("denied the request: ")[2] or text
    return " ".join(text.split()).rstrip(";")


def _unserved(error: ApiError) -> bool:
    """Whether the cluster does not know the kind of object at all."""
    return error.status == 404 and "could not find the requested resource" in str(error)
