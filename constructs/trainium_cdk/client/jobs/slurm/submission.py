"""The submission of jobs to a Slurm cluster: each as data, which the runner carries out.

A job is at most two jobs of Slurm's. The second starts when the first has completed, and is cancelled by Slurm if that is no longer possible:

    prepare     fetches code, data and packages, on one node of the CPU queue, or else of the cheapest queue. Unlike
                the head node it may fail, be requeued and resume, and Slurm has its state and log; it is
                skipped if everything is already fetched.
    train       has up to two stages in one allocation. `precompile` compiles the graphs into each node's own cache. `train` trains on the same
                nodes; requeued after a node failure, it resumes from its last checkpoint. Nodes that have compiled do not compile again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.backend import Patience
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.status import Submitted
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError, NotTheirs, SubmitError, TransportError
from trainium_cdk.runner.requests import Error, Outcome, SubmitJobs

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.workdir import Sent

MOST = 100
"""Jobs in one request: it takes some seconds."""
_SECONDS = 300


def send(
    ask: Callable[..., Any],
    cluster: SlurmCluster,
    rendered: Sequence[Plan],
    patience: Patience,
    say: Callable[[str], None],
) -> list[Submitted | SubmitError]:
    """The outcomes of jobs of different ids, in their order.

    Args:
        ask: `SlurmBackend.ask`.
        say: gets what the user must know of a job.

    Raises:
        TransportError: some have none: the cluster cannot be reached, or Slurm does not answer. They may exist.
    """
    outcomes: dict[str, Submitted | SubmitError] = {}
    for first in range(0, len(rendered), MOST):
        part = rendered[first : first + MOST]
        sent = {one.id: _deliver(one) for one in part}
        patience.ask(partial(_ask, ask, cluster, part, sent, outcomes, say))
    return [outcomes[one.id] for one in rendered]


def _ask(
    ask: Callable[..., Any],
    cluster: SlurmCluster,
    part: Sequence[Plan],
    sent: dict[str, Sent | None],
    outcomes: dict[str, Submitted | SubmitError],
    say: Callable[[str], None],
) -> None:
    """Send what has no outcome yet, and add the outcomes. Raises a TransportError if one is still missing."""
    left = [one for one in part if one.id not in outcomes]
    addresses = _addresses(left)
    private = bool(addresses) or any(one.spec.variables for one in left)
    given = SubmitJobs(tuple(one.spec for one in left), addresses)
    try:
        answer: Sequence[Outcome] = ask(given, seconds=_SECONDS, private=private)
    except (JobError, NotTheirs) as e:  # before the first job
        answer = [Outcome(error=Error("refused", str(e)))] * len(left)
    except TransportError as e:
        raise _unfinished(cluster, left, part, str(e), again=e.again, restarting=e.restarting) from None
    waits = ""
    for one, outcome in zip(left, answer, strict=True):
        if (error := outcome.error) is None:
            if outcome.note:
                say(outcome.note)
            numbers = dict(outcome.stages)
            outcomes[one.id] = Submitted(
                one.id, outcome.existing, numbers, one.directory, outcome.resubmitted, sent[one.id]
            )
        elif error.kind == "later":
            waits = waits or error.message
        else:
            undone = "" if error.kind == "taken" else ". Nothing of it is left there"
            reason = f"{one.id} was not submitted to {cluster.cluster_name}: {error.message}{undone}"
            outcomes[one.id] = SubmitError(reason)
    if waits:
        left = [one for one in left if one.id not in outcomes]
        raise _unfinished(cluster, left, part, waits, restarting=True)


def _unfinished(
    cluster: SlurmCluster,
    left: Sequence[Plan],
    part: Sequence[Plan],
    why: str,
    *,
    again: bool = True,
    restarting: bool = False,
) -> TransportError:
    first = left[0]
    if len(part) == 1:
        token = first.id.removeprefix(f"{first.job.label}-")
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


def _addresses(rendered: Sequence[Plan]) -> dict[str, str]:
    """Presigned addresses of the folders of code."""
    found: dict[str, str] = {}
    for one in rendered:
        if workdir := getattr(one.job, "workdir", None):
            from trainium_cdk.client.jobs.workdir import folder_addresses

            found |= folder_addresses(workdir, one.cluster.bucket, one.cluster.region)
    return found


def _deliver(rendered: Plan) -> Sent | None:
    cluster, workdir = rendered.cluster, getattr(rendered.job, "workdir", None)
    if not workdir:
        return None
    from trainium_cdk.client.jobs.workdir import send_folder

    return send_folder(workdir, cluster.bucket, cluster.region)
