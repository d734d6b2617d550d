"""The status of a stage of a Slurm job, from what is known of it. Pure.
Slurm forgets ended jobs after minutes, and in a crash of its controller everything that it had not saved.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from trainium_cdk.jobs.status import ACTIVE, Stage, parse_int

_SLURM = {
    "PENDING": "PENDING",
    "CONFIGURING": "PENDING",
    "REQUEUED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
    "SUSPENDED": "RUNNING",
    "STOPPED": "RUNNING",
    "RUNNING": "RUNNING",
    "COMPLETING": "RUNNING",
    "SIGNALING": "RUNNING",
    "STAGE_OUT": "RUNNING",
    "RESIZING": "RUNNING",
    "COMPLETED": "COMPLETED",
    "CANCELLED": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
    "DEADLINE": "TIMEOUT",
    "NODE_FAIL": "NODE_FAIL",
    "PREEMPTED": "NODE_FAIL",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "BOOT_FAIL": "NODE_FAIL",
    "FAILED": "FAILED",
}
_WAITS = {
    "Dependency": "waits for {before}",
    "JobHeldUser": "held by its user: scontrol release {number}",
    "launch failed requeued held": "it could not be started on its nodes, and {held}",
    "JobHeldAdmin": "held by an administrator",
    "Resources": "{nodes}",
    "Nodes required for job are DOWN": "{nodes}",
    "Priority": "{nodes}",
    "ReqNodeNotAvail": "{nodes}",
    "BeginTime": "{begins}",
    "PartitionInactive": "{inactive}",
    "PartitionDown": "the queue takes jobs, but starts none: its partition is DOWN. An administrator has set that (scontrol update "
    "partitionname=QUEUE state=up ends it)",
    "PartitionNodeLimit": "requests more nodes than the queue has",
    "InvalidAccount": "its account no longer exists, or is not its user's (sacctmgr show assoc)",
    "InvalidQOS": "its QoS no longer exists, or is not its account's (sacctmgr show assoc)",
}
"""Why a pending job waits. Slurm keeps it as the reason of a job that is cancelled meanwhile."""
_REASONS = {
    "None": "",
    "NonZeroExitCode": "{failed}",
    "JobLaunchFailure": "{unlaunched}",
    "DependencyNeverSatisfied": "did not run: {before} did not complete",
    **_WAITS,
}


_STOPPED = {"CANCELLED": "", "TIMEOUT": "reached its time limit"}
"""The reasons that a stopped stage records."""


class Down(NamedTuple):
    """Nodes of a queue that are down since a time, with the reason that Slurm has."""

    queue: str
    since: str
    nodes: str
    reason: str


class Known(NamedTuple):
    """What is known of a stage.

    Attributes:
        before: the stage before it.
        queue: its line of squeue: number, state, reason, nodes, start, end; None if Slurm does not list it.
        state: what the stage has written: running or ended, number, exit code, time, nodes, and why it was stopped.
        account: its line of sacct: number, state, exit code, nodes, start, end.
        anothers: whether Slurm has given its number to another job.
        cancelled: whether `trn cancel` was run.
        elsewhere: the head node of the cluster it was submitted to, if that is another one.
        inactive: why its queue takes no jobs, if that is the reason.
        full: the shared file system, if no block of it is free.
        down: the nodes of its queue that are down.
        blocks: capacity blocks of its queue that are not active.
        cpu: whether its queue is that of the nodes without Trainium.
    """

    before: Stage | None = None
    queue: Sequence[str] | None = None
    state: Sequence[str] | None = None
    account: Sequence[str] | None = None
    anothers: bool = False
    cancelled: bool = False
    elsewhere: str | None = None
    inactive: str = ""
    full: str = ""
    down: tuple[Down, ...] = ()
    blocks: tuple[str, ...] = ()
    cpu: bool = False


def stage(name: str, number: str, known: Known) -> Stage:
    """The status of a stage: from Slurm's queue first, then its accounting, then what the stage has written."""
    found, state = _stage(name, number, known), known.state
    if found.state in ("FAILED", "OUT_OF_MEMORY") and state and state[0] == "ended" and len(state) > 5:
        return replace(found, failed_node=parse_int(state[5]))
    return found


def _stage(name: str, number: str, known: Known) -> Stage:
    state = known.state
    code = parse_int(state[2]) if state and state[0] == "ended" else None
    if known.queue and len(known.queue) >= 6:
        return _of_queue(name, number, known, code)
    if known.account and len(known.account) >= 6:
        slurm_state, exit_code, nodes, start, end = known.account[1:6]
        now = "COMPLETED" if code == 0 else _SLURM.get(slurm_state.partition(" ")[0], "UNKNOWN")
        if now not in ACTIVE:  # else the controller lost it in a crash, and accounting has it as running for ever
            if code is None:
                code = parse_int(exit_code.partition(":")[0])
            if code == 0 and now != "COMPLETED":  # of what was killed: 0:9, 0:0
                code = None
            reason = _failed(known, code) if now == "FAILED" else ""
            return Stage(name, number, now, reason, nodes, code, moment(start), moment(end))
    if state and state[0] == "ended":
        return _ended(name, number, known, state, code)
    before = known.before
    if before is not None and before.state == "LOST":
        return Stage(name, number, "LOST", f"lost with {before.name}")
    if before is not None and before.state not in ("PENDING", "RUNNING", "COMPLETED"):
        reason = "" if known.cancelled else _REASONS["DependencyNeverSatisfied"].format(before=before.name)
        return Stage(name, number, "CANCELLED", reason)
    if known.cancelled:
        return Stage(name, number, "CANCELLED", "", state[4] if state else "")
    started = parse_int(state[3]) if state else None
    nodes = state[4] if state else ""
    if known.elsewhere is not None:
        return Stage(name, number, "UNKNOWN", _ELSEWHERE.format(known.elsewhere), nodes, None, started)
    if state and known.anothers:
        return Stage(name, number, "LOST", _LOST_RUNNING.format("the same"), nodes, None, started)
    if state:
        return Stage(name, number, "FAILED", _KILLED, nodes, None, started)
    return Stage(name, number, "LOST", _LOST.format(number) if known.anothers else _FORGOTTEN)


SAME = "it again with the same token"
"""In the reasons of stages that may be submitted again."""
_LOST = (
    "Slurm's controller crashed before it had saved it, and number {} is another job's now. Submit it again with the same "
    "token"
)
_LOST_RUNNING = "Slurm's controller crashed before it had saved it, and stopped it. Submit it again with {} token"
_LOST_DEPENDENCY = (
    "Slurm's controller crashed, forgot that {before} completed, and cancelled it. Submit it again with the same token"
)
_KILLED = (
    "it ended before it could write its result: a kill, a node that failed, or a crash of Slurm's controller. Submit it again with the "
    "same token"
)
_FULL = "it could not write its state: the shared file system {} is full. Free space, then submit it again with the same token"
_NOT_BEGUN = (
    "it ended before it could write its state: the shared file system may have been full, or Slurm's controller crashed. "
    "Submit it again with the same token"
)
_UNLAUNCHED = (
    "Slurm could not start it on {} (JobLaunchFailure): its controller crashed at that moment, or slurmd's log there has the "
    "reason. Submit it again with the same token"
)
_FORGOTTEN = (
    "Slurm does not know it, and it has not begun: it was cancelled with scancel while it waited, or Slurm's controller "
    "crashed before it had saved it. Submit it again with the same token"
)
_ELSEWHERE = (
    "it was submitted on another cluster (head node {}) of this file system. Use that one; if it is deleted, submit it "
    "again with a new token"
)


def _failed(known: Known, code: int | None) -> str:
    if code is not None:
        state = known.state
        if (
            state and len(state) > 5 and parse_int(state[5]) is not None and re.search(r"[\[,]", state[4])
        ):  # several nodes
            return f"exit code {code}, on node {state[5]} first"
        return f"exit code {code}"
    if known.state:
        return _KILLED
    return _FULL.format(known.full) if known.full else _NOT_BEGUN


def _of_queue(name: str, number: str, known: Known, code: int | None) -> Stage:
    assert known.queue is not None  # noqa: S101  checked by the caller
    _, slurm_state, reason, nodes, began, end = known.queue[:6]
    state = known.state
    ended_at = parse_int(state[3]) if state and state[0] == "ended" else None
    started = moment(began) or (parse_int(state[3]) if state and state[0] == "running" else None)
    ended = moment(end) or ended_at
    current, reason = _SLURM.get(slurm_state, "UNKNOWN"), reason.split(",")[0]
    if current in ("PENDING", "RUNNING"):
        ended, code = None, None
    if current == "PENDING":
        started = None
    before = known.before
    if current == "CANCELLED" and before is not None and before.state not in ("PENDING", "RUNNING", "COMPLETED"):
        reason = "DependencyNeverSatisfied"
    # a script that a signal killed has JobLaunchFailure, too (Slurm 22.05); the file of an earlier attempt is older (5 s: of two clocks)
    begun = state is not None and state[0] == "running" and (parse_int(state[3]) or 0) >= (started or 0) - 5
    text = known.queue[2]
    if current == "PENDING" and (limit := _LIMIT.fullmatch(reason)):
        text = _limit(limit)
    if current == "FAILED" and code is None and known.cancelled:
        current, reason = "CANCELLED", "None"
    if code == 0:
        # started again or cancelled by a controller that had crashed and forgotten that it completed; such a start may fail
        current, reason = "COMPLETED", "None"
    if (
        current == "CANCELLED"
        and reason == "DependencyNeverSatisfied"
        and before is not None
        and before.state == "COMPLETED"
    ):
        return Stage(name, number, "LOST", _LOST_DEPENDENCY.format(before=before.name))
    if (
        current == "CANCELLED"
        and code
        and state
        and started
        and ended_at
        and started <= ended_at
        and not known.cancelled
    ):
        # it had ended; a recovered controller had forgotten that, and the stage was cancelled to end it
        return _ended(name, number, known, state, code)
    if reason in _WAITS and current != "PENDING":
        reason = "None"
    if reason in _REASONS:
        text = _REASONS[reason].format(
            before=before.name if before else "the job before it (--after)",
            failed=_failed(known, code),
            unlaunched=_failed(known, code) if code is not None or begun else _UNLAUNCHED.format(nodes),
            # only the stages of jobs are released (`remind` in shell/ask.sh)
            held=f"is held: scontrol release {number}" if "_" in number else "is retried",
            inactive=known.inactive,
            number=number,
            nodes=_waits_for_nodes(known, text),
            begins=f"starts again in a moment{_lost(known)}" if state else "starts in a moment",
        )
    if slurm_state == "SUSPENDED":
        text = f"suspended by an administrator: scontrol resume {number} continues it"
    return Stage(name, number, current, text, nodes or (state[4] if state else ""), code, started, ended)


_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max)(\w*?)(?:PerUser|PerAccount|PerJob)?(?:Limit)?")
"""The reasons of limits of accounting (job_reason_str of Slurm 22.05 to 25.05)."""
_LIMITED = {
    "Job": "running jobs",
    "Jobs": "running jobs",
    "SubmitJob": "submitted jobs",
    "SubmitJobs": "submitted jobs",
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Node": "nodes",
    "Mem": "memory",
    "Memory": "memory",
    "Wall": "time",
    "WallDuration": "time",
    "CPUMinutes": "CPU minutes, used up",
    "CpuMinutes": "CPU minutes, used up",
    "CPURunMinutes": "CPU minutes of running jobs",
    "CpuRunMinutes": "CPU minutes of running jobs",
}


def _limit(found: re.Match[str]) -> str:
    """A limit of a QoS or an account, which an administrator has set: Slurm starts the job when it allows that."""
    whose, group, what = found[1], found[2], found[3]
    each = next((f" of each {who.lower()}" for who in ("User", "Account", "Job") if f"Per{who}" in found[0]), "")
    of = "its QoS" if whose == "QOS" else "its account"
    show = "qos" if whose == "QOS" else "assoc"
    together = " together" if group == "Grp" else ""
    return f"waits for a limit of {of}: {_LIMITED.get(what, what)}{each}{together} ({found[0]}; sacctmgr show {show})"


def _lost(known: Known) -> str:
    """The nodes that are down, of which the stage has lost one."""
    return next((f": {down.nodes[:200]} is down ({down.reason[:200]})" for down in known.down), "")


_EC2_CODE = re.compile(r"\((Error )?Code: ?(\w{1,60})\)")
"""ParallelCluster's reason of a node, or PCS's."""
_NO_CAPACITY = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow", "Unsupported",
}  # fmt: skip
RETRY_SECONDS = 600
"""After one of these codes, ParallelCluster does not use a compute resource for this time (user guide, fast insufficient capacity
fail-over, 2026-11-24: `insufficient_capacity_timeout`)."""


def _waits_for_nodes(known: Known, text: str) -> str:
    """Why nodes are not there: what EC2 reported for those that could not be started, or what Slurm says of those that are down."""
    compiled = known.before is not None and known.before.name == "precompile"
    waits = (
        "waits behind other jobs" if text == "Priority" else "waits for a CPU node" if known.cpu else "waits for nodes"
    )
    if known.blocks and text != "Priority":
        return f"waits for capacity block {known.blocks[0]}, which is not active: it has not begun, or it has ended; `trn why STACK` tells which"
    if text.startswith("ReqNodeNotAvail") and "Reserved" in text:
        waits = "waits for nodes that are reserved (scontrol show reservation)"
    elif text.startswith("ReqNodeNotAvail") and compiled:
        waits = "waits for the nodes that compiled: at least one is down or taken (ReqNodeNotAvail)"
    from trainium_cdk.catalog.known_errors import explain  # only here: not for each `trn status`

    refused = [d for d in known.down if _EC2_CODE.search(d.reason)]
    for down in (refused or (() if text == "Priority" else known.down))[:1]:
        code = _EC2_CODE.search(down.reason)
        if code is None:
            return f"{waits}; {down.nodes[:200]} is down: {down.reason[:200]}"
        since = moment(down.since)
        error = explain(down.reason)
        at = f" at {_clock(since)}" if since else ""
        again = ""
        if since and not code[1] and code[2] in _NO_CAPACITY:
            again = f", and ParallelCluster tries again at {_clock(since + RETRY_SECONDS)}"
        return f"{waits}; EC2 reported {code[2]} for {down.nodes[:200]}{at}{again}" + (f": {error}" if error else "")
    return waits


def _clock(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%H:%M} UTC"


def _ended(name: str, number: str, known: Known, state: Sequence[str], code: int | None) -> Stage:
    """The status that the stage itself has written."""
    ended, nodes = parse_int(state[3]), state[4]
    if code == 0:
        return Stage(name, number, "COMPLETED", "", nodes, code, None, ended)
    why = state[5] if len(state) > 5 else ""
    if why == "LOST" and not known.cancelled:
        token = "the same" if known.elsewhere is None else "a new"
        return Stage(name, number, "LOST", _LOST_RUNNING.format(token), nodes, code, None, ended)
    if why in _STOPPED:
        return Stage(name, number, why, _STOPPED[why], nodes, code, None, ended)
    if known.cancelled:
        return Stage(name, number, "CANCELLED", "", nodes, code, None, ended)
    return Stage(name, number, "FAILED", _failed(known, code), nodes, code, None, ended)


def moment(text: str) -> int | None:
    """A time as Slurm prints it, in UTC, in seconds since 1970; None for anything else."""
    try:
        return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp())
    except (ValueError, OverflowError):
        return None
