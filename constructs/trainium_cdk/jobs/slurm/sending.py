"""Submissions to a Slurm cluster: some in one request, each once, repeated until each has an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from trainium_cdk.errors import JobError, NotTheirs, SubmitError, TransportError
from trainium_cdk.jobs.patience import Patience
from trainium_cdk.jobs.slurm import asking
from trainium_cdk.jobs.status import Submitted
from trainium_cdk.runner.requests import SubmitJobs

if TYPE_CHECKING:
    from trainium_cdk.jobs.archive import Sent
    from trainium_cdk.jobs.slurm.render import SlurmSubmission
    from trainium_cdk.jobs.slurm.transport import Transport
    from trainium_cdk.outputs import SlurmCluster

MOST = 100
"""Jobs in one request: it takes some seconds."""
_SECONDS = 300.0


def send(
    transport: Transport, cluster: SlurmCluster, submissions: Sequence[SlurmSubmission], patience: Patience
) -> list[Submitted | SubmitError]:
    """The outcomes of jobs of different ids, in their order.

    Raises:
        TransportError: some have none: the cluster cannot be reached, or Slurm does not answer. They may exist.
    """
    outcomes: dict[str, Submitted | SubmitError] = {}
    for first in range(0, len(submissions), MOST):
        part = submissions[first : first + MOST]
        sent = {one.id: _deliver(one) for one in part}
        patience.ask(partial(_ask, transport, cluster, part, sent, outcomes))
    return [outcomes[one.id] for one in submissions]


def _ask(
    transport: Transport,
    cluster: SlurmCluster,
    part: Sequence[SlurmSubmission],
    sent: dict[str, Sent | None],
    outcomes: dict[str, Submitted | SubmitError],
) -> None:
    """Send what has no outcome yet, and add the outcomes. Raises a TransportError if one is still missing."""
    left = [one for one in part if one.id not in outcomes]
    addresses = _addresses(left)
    private = bool(addresses) or any(one.spec.variables for one in left)
    given = SubmitJobs(tuple(one.spec for one in left), addresses)
    try:
        told = asking.ask(transport, cluster, given, timeout=_SECONDS, private=private)
    except (JobError, NotTheirs) as e:  # before the first job
        told = [{"error": {"kind": "refused", "message": str(e)}} for _ in left]
    except TransportError as e:
        raise _unfinished(cluster, left, part, str(e), again=e.again, restarting=e.restarting) from None
    waits = ""
    for one, answer in zip(left, told, strict=True):
        error = answer.get("error") or {}
        if error.get("kind") == "later":
            waits = waits or str(error["message"])
        elif error:
            undone = "" if error["kind"] == "taken" else ". Nothing of it is left there"
            reason = f"{one.id} was not submitted to {cluster.cluster_name}: {error['message']}{undone}"
            outcomes[one.id] = SubmitError(reason)
        else:
            numbers = {str(stage): str(number) for stage, number in answer["stages"].items()}
            again = tuple(map(str, answer["resubmitted"]))
            outcomes[one.id] = Submitted(one.id, bool(answer["existing"]), numbers, one.directory, again, sent[one.id])
    if waits:
        left = [one for one in left if one.id not in outcomes]
        raise _unfinished(cluster, left, part, waits, restarting=True)


def _unfinished(
    cluster: SlurmCluster,
    left: Sequence[SlurmSubmission],
    part: Sequence[SlurmSubmission],
    why: str,
    *,
    again: bool = True,
    restarting: bool = False,
) -> TransportError:
    first = left[0]
    if len(part) == 1:
        token = first.id.removeprefix(f"{first.plan.job.label}-")
        text = (
            f"the submission of {first.id} to {cluster.cluster_name} has not finished: {why}. "
            f"Submit it again with token {token}: it is submitted only once"
        )
    else:
        text = (
            f"{len(left)} of {len(part)} jobs are not submitted to {cluster.cluster_name} yet ({first.id} is the first): {why}. "
            "Submit them all again with the same token: each is submitted only once"
        )
    return TransportError(text, again=again, restarting=restarting)


def _addresses(submissions: Sequence[SlurmSubmission]) -> dict[str, str]:
    """Presigned addresses of the folders of code."""
    found: dict[str, str] = {}
    for one in submissions:
        if workdir := getattr(one.plan.job, "workdir", None):
            from trainium_cdk.jobs import archive

            found |= archive.addresses(workdir, one.plan.cluster.bucket, one.plan.cluster.region)
    return found


def _deliver(submission: SlurmSubmission) -> Sent | None:
    cluster, workdir = submission.plan.cluster, getattr(submission.plan.job, "workdir", None)
    if not workdir:
        return None
    from trainium_cdk.jobs import archive

    return archive.send(workdir, cluster.bucket, cluster.region)
