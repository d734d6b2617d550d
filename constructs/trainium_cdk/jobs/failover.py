"""Where a job goes on that may run in several environments (`trn launch --failover`): a decision from what is observed. Pure.

What is observed is the state: of each environment its job, which has the same id in all of them, and whether it is recorded beside the
job that it leaves. So a launch that was killed at any point comes to the same decision again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainium_cdk.jobs.status import JobStatus

_CAPACITY = frozenset({"no-capacity", "reservation", "quota", "spot-price", "unsupported-type", "block-over"})
"""Known errors (`catalog/data/known_errors.yaml`) that another zone, region or capacity type may not have."""
_WAITS = re.compile(r"waits for capacity (block|reservation)|\bcame within \d+")
"""What Slurm's status and EKS's node scaler say without an error of EC2."""
_TAKEN = re.compile(r"^(node \S+ ended its pod|its pod on node \S+ is ended): ")
"""Of a stage on Kubernetes: its pod was ended from outside (`kubernetes/status.py`)."""
USED_UP = "the most that --restarts allows"
"""In the log of a stage on Slurm that was started again after each loss of a node, until it may not be any more (`shell/stage.sh`)."""
_LEAVES = "it goes on in another environment"
_ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})


@dataclass(frozen=True)
class Seen:
    """One environment, as it is now.

    Attributes:
        job: this launch's job there; None if it has none.
        leaves: it is recorded that the job leaves this environment.
        closed: why no node can start there; empty if that is not known to be so.
        waited: seconds for which the job has waited for capacity.
        used_up: whether it failed because nodes were lost more often than it may be started again.
        unknown: why it cannot be told whether it has the job, such as a stack that is being deleted; empty if it can.
    """

    job: JobStatus | None = None
    leaves: bool = False
    closed: str = ""
    waited: float = 0.0
    used_up: bool = False
    unknown: str = ""


@dataclass(frozen=True)
class Step:
    """What to do now.

    Attributes:
        do: submit the job in environment `at`, with the checkpoints of `source`; follow it there; leave: record that it leaves `at`, and
            end it there; end: the launch is over.
        why: for the user.
        ok: of an end, whether the job has completed.
    """

    do: Literal["submit", "follow", "leave", "end"]
    at: int
    why: str = ""
    source: int | None = None
    ok: bool = False


def decide(seen: Sequence[Seen], patience: float) -> Step:
    """What to do.

    Args:
        seen: the environments, in the order in which they are tried.
        patience: seconds for which a job may wait for capacity where another environment is left to try.
    """
    there = [i for i, one in enumerate(seen) if one.job is not None]
    if not there:
        first = next((one.unknown for one in seen if one.unknown), "")
        return Step("end", 0, first) if first else _next(seen, -1)
    at = there[-1]
    for earlier in there[:-1]:
        if (job := seen[earlier].job) and not ended(job):
            if seen[earlier].leaves:
                return Step("leave", earlier, _LEAVES)
            return Step(
                "end", earlier, f"{job.id} is {job.state}, and in another environment too. Cancel one (trn cancel)"
            )
    now, job = seen[at], seen[at].job
    assert job is not None  # noqa: S101  see `there`
    if job.ok:
        return Step("end", at, "completed", ok=True)
    if now.leaves:
        return _next(seen, at) if ended(job) else Step("leave", at, _LEAVES)
    left = _next(seen, at).do == "submit"
    if ended(job):
        lost = nodes_lost(now)
        return Step("leave", at, lost) if lost and left else Step("end", at, lost or _own(job))
    if job.state not in ("PENDING", "RUNNING"):
        return Step("end", at, f"{job.state}: {job.current.reason}")
    if left and shortage(job) and now.waited >= patience:
        return Step("leave", at, job.current.reason)
    return Step("follow", at)


def _next(seen: Sequence[Seen], at: int) -> Step:
    """The first environment after this one in which nodes may start."""
    for number in range(at + 1, len(seen)):
        if not seen[number].closed:
            return Step("submit", number, source=at if at >= 0 else None)
    return Step("end", max(at, 0), "no environment is left to try")


def ended(job: JobStatus) -> bool:
    """Whether it is certain that nothing of it runs: a scheduler that has lost a job does not know."""
    return job.done and all(stage.state in _ENDED for stage in job.stages)


def shortage(job: JobStatus) -> bool:
    """Whether it waits for instances that EC2 does not give now, not behind other jobs or for nodes that start."""
    return job.state == "PENDING" and of_capacity(job.current.reason)


def of_capacity(text: str) -> bool:
    """Whether a message tells that EC2 gives no instance."""
    from trainium_cdk.catalog.known_errors import explain

    error = explain(text)
    return bool((error and error.name in _CAPACITY) or _WAITS.search(text))


def nodes_lost(now: Seen) -> str:
    """Why the job ended, if its nodes were taken away and it is not started again; empty if it ended otherwise."""
    stage = now.job.current if now.job else None
    if stage is None or stage.state not in ("NODE_FAIL", "FAILED"):
        return ""
    if stage.state == "NODE_FAIL":
        return stage.reason or "a node was lost"
    if now.used_up:
        return "nodes were lost more often than --restarts allows"
    return stage.reason if _TAKEN.search(stage.reason) else ""


def _own(job: JobStatus) -> str:
    reason = f": {job.current.reason}" if job.current.reason else ""
    return f"{job.state}{reason}. It does not run again with this token"


def token(*parts: str) -> str:
    """The token of a launch: the same for the same parts.

    >>> token("user", "train.py") == token("user", "train.py"), token("a", "b") == token("ab", "")
    (True, False)
    """
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
