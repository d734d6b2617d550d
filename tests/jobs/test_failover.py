"""Where a launch over several environments goes on: a table of what is observed and what follows; the messages are those of the engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs.kubernetes.test_status import RETRY
from trainium_cdk.jobs.failover import Seen, Step, decide, ended, of_capacity
from trainium_cdk.jobs.status import JobStatus, Stage

REFUSED = (
    "waits for nodes; EC2 reported InsufficientInstanceCapacity for compute1-dy-trn-[1-2] at 10:00 UTC, and ParallelCluster tries again at "
    "10:10 UTC: EC2 has no free instance of this type in this zone"
)
BLOCK = "waits for capacity block cr-0a1b2c3d4e5f60718, which is not active: it has not begun, or it has ended"
TAKEN = "its pod on node ip-10-0-1-20.ec2.internal is ended: DeletionByTaintManager: deleting due to NoExecute taint"
PATIENCE = 1200.0


def job(state: str, reason: str = "", *before: str) -> JobStatus:
    """Its training is in this state, the stages before it in these."""
    names = ("prepare", "precompile")[2 - len(before) :] if before else ()
    stages = [Stage(name, str(i), of) for i, (name, of) in enumerate(zip(names, before, strict=True))]
    return JobStatus(
        "run-1", "script", "compute1", "trn1.32xlarge", 2, None, (*stages, Stage("train", "7", state, reason))
    )


def there(state: str, reason: str = "", **seen: object) -> Seen:
    return replace(Seen(job(state, reason)), **seen)  # type: ignore[arg-type]


NONE, SHUT, GOES = Seen(), Seen(closed="this zone does not offer it"), "it goes on in another environment"
LEFT = there("CANCELLED", leaves=True)


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        # nothing has begun
        ([NONE, NONE], Step("submit", 0)),
        ([SHUT, NONE], Step("submit", 1)),
        ([SHUT, SHUT], Step("end", 0, "no environment is left to try")),
        ([Seen(unknown="A is DELETE_IN_PROGRESS", closed="gone"), NONE], Step("end", 0, "A is DELETE_IN_PROGRESS")),
        # it waits
        ([there("PENDING", REFUSED, waited=PATIENCE - 1), NONE], Step("follow", 0)),
        ([there("PENDING", REFUSED, waited=PATIENCE), NONE], Step("leave", 0, REFUSED)),
        ([there("PENDING", BLOCK, waited=PATIENCE), NONE], Step("leave", 0, BLOCK)),
        ([there("PENDING", REFUSED, waited=9 * PATIENCE)], Step("follow", 0)),  # the last one waits as long as it takes
        ([there("PENDING", REFUSED, waited=9 * PATIENCE), SHUT], Step("follow", 0)),
        ([there("PENDING", "waits behind other jobs", waited=9 * PATIENCE), NONE], Step("follow", 0)),
        ([there("PENDING", "waits for nodes", waited=9 * PATIENCE), NONE], Step("follow", 0)),  # EC2 is asked again just now
        ([there("RUNNING", waited=9 * PATIENCE), NONE], Step("follow", 0)),
        ([Seen(job("PENDING", "waits for precompile", "COMPLETED", "RUNNING")), NONE], Step("follow", 0)),
        # it has ended
        ([there("COMPLETED"), NONE], Step("end", 0, "completed", ok=True)),
        ([there("COMPLETED", leaves=True), NONE], Step("end", 0, "completed", ok=True)),
        ([there("FAILED", "exit code 1"), NONE], Step("end", 0, "FAILED: exit code 1. It does not run again with this token")),
        ([Seen(job("CANCELLED", "", "COMPLETED", "FAILED")), NONE], Step("end", 0, "FAILED. It does not run again with this token")),
        ([there("OUT_OF_MEMORY"), NONE], Step("end", 0, "OUT_OF_MEMORY. It does not run again with this token")),
        ([there("TIMEOUT", "reached its time limit"), NONE],
         Step("end", 0, "TIMEOUT: reached its time limit. It does not run again with this token")),
        ([there("CANCELLED"), NONE], Step("end", 0, "CANCELLED. It does not run again with this token")),  # by its user
        ([there("NODE_FAIL", "a node is down"), NONE], Step("leave", 0, "a node is down")),
        ([there("NODE_FAIL"), SHUT], Step("end", 0, "a node was lost")),
        ([there("FAILED", "exit code 1", used_up=True), NONE], Step("leave", 0, "nodes were lost more often than --restarts allows")),
        ([there("FAILED", TAKEN), NONE], Step("leave", 0, TAKEN)),
        ([there("FAILED", f"exit code 1, after {TAKEN}"), NONE],
         Step("end", 0, f"FAILED: exit code 1, after {TAKEN}. It does not run again with this token")),
        ([there("LOST", "lost"), NONE], Step("end", 0, "LOST: lost")),
        ([there("UNKNOWN", "on another cluster"), NONE], Step("end", 0, "UNKNOWN: on another cluster")),
        # it leaves: it is ended there before it is anywhere else, whatever it does meanwhile
        ([there("PENDING", REFUSED, leaves=True), NONE], Step("leave", 0, GOES)),
        ([there("RUNNING", leaves=True), NONE], Step("leave", 0, GOES)),
        ([there("LOST", leaves=True), NONE], Step("leave", 0, GOES)),
        ([LEFT, NONE], Step("submit", 1, source=0)),
        ([LEFT, SHUT, NONE], Step("submit", 2, source=0)),
        ([LEFT, SHUT], Step("end", 0, "no environment is left to try")),
        # it is elsewhere
        ([LEFT, there("RUNNING"), NONE], Step("follow", 1)),
        ([NONE, there("RUNNING"), NONE], Step("follow", 1)),  # the cluster that it has left is removed
        ([Seen(unknown="A is DELETE_IN_PROGRESS"), there("RUNNING")], Step("follow", 1)),
        ([LEFT, there("PENDING", REFUSED, waited=PATIENCE), NONE], Step("leave", 1, REFUSED)),
        ([LEFT, LEFT, NONE], Step("submit", 2, source=1)),
        ([LEFT, there("COMPLETED")], Step("end", 1, "completed", ok=True)),
        ([there("RUNNING", leaves=True), there("PENDING")], Step("leave", 0, GOES)),
        ([there("RUNNING"), there("PENDING")],
         Step("end", 0, "run-1 is RUNNING, and in another environment too. Cancel one (trn cancel)")),
        ([there("LOST", leaves=True), LEFT, NONE], Step("leave", 0, GOES)),
    ],
)  # fmt: skip
def test_what_follows(seen: list[Seen], step: Step) -> None:
    assert decide(seen, PATIENCE) == step


def test_no_second_copy_from_any_state() -> None:
    """Whatever the states of two environments are: nothing is submitted unless all that is there is certain to have ended."""
    states = [
        "PENDING",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "LOST",
        "UNKNOWN",
    ]
    every = [NONE, SHUT, *(there(s, r, leaves=leaves, waited=w, used_up=u) for s in states for r in (REFUSED, TAKEN) for leaves in (True, False)
                           for w in (0.0, PATIENCE) for u in (True, False))]  # fmt: skip
    tried = 0
    for first in every:
        for second in every:
            step = decide([first, second, NONE], PATIENCE)
            if step.do == "submit":
                tried += 1
                jobs = [one.job for one in (first, second) if one.job]
                assert all(ended(job) for job in jobs)
                last = [one for one in (first, second) if one.job][-1:]
                assert all(one.leaves for one in last)
    assert tried > 50


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (RETRY["message"], True),
        ("waits for 2 nodes of trn, since 10:00 UTC. AWS: Could not launch On-Demand Instances. VcpuLimitExceeded - You have", True),
        ("position 1 in its queue: 0 of 2 nodes of trn came within 15 minutes", True),
        ("capacity block cr-0123456789abcdef0 is expired; give the node group another one (reservation)", True),
        ("Failed to launch backing instance (Error Code: InsufficientInstanceCapacity)", True),
        ("position 2 in its queue: couldn't assign flavors to pod set train: insufficient unused quota", False),
        ("ImagePullBackOff: Back-off pulling image", False),
        ("waits for nodes; compute1-dy-trn-1 is down: Node unexpectedly rebooted", False),
    ],
)  # fmt: skip
def test_want_of_capacity_is_told_from_other_waits(text: str, is_one: bool) -> None:
    assert of_capacity(text) is is_one
