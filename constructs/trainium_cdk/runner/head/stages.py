"""The status of a stage of a Slurm job, from what is known of it.

Slurm forgets ended jobs after minutes, and in a crash of its controller everything that it had not saved. So there are three sources, as none
has everything: Slurm's queue, what the stage has written (incomplete if it was killed), and Slurm's accounting (if there is any).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from .. import slurm
from ..records import ENDED, LOST, RUNNING, State
from ..status import ACTIVE, Stage, parse_int

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
    "PartitionTimeLimit": "requests more time than the queue allows: give a shorter --time-limit",
    "PartitionConfig": "requests more than the queue allows (scontrol show partition)",
    "MaxMemPerLimit": "requests more memory of a node or CPU than the queue allows (scontrol show partition)",
    "Constraints": "no node of the queue has what it requests: look at its --sbatch options",
    "BadConstraints": "no node of the queue has what it requests: look at its --sbatch options",
    "SchedDefer": "must start at once (--sbatch --immediate), which this cluster does for no job",
    "InvalidAccount": "its account no longer exists, or is not its user's (sacctmgr show assoc)",
    "AccountNotAllowed": "the queue does not take jobs of its account: give another --account or --queue",
    "InvalidQOS": "its QoS no longer exists, or is not its account's (sacctmgr show assoc)",
    "QOSNotAllowed": "the queue or its account does not take its QoS: give another --qos or --queue",
    "QOSUsageThreshold": "its account has used so much that its QoS starts no more jobs (sshare)",
    "AccountingPolicy": "waits for a limit of its account or QoS (sacctmgr show assoc; sacctmgr show qos)",
    **{
        f"{of}{what}Limit": f"waits for a limit of its {name}: {words} (sacctmgr show {show})"
        for of, name, show in (("Association", "account", "assoc"), ("QOS", "QoS", "qos"))
        for what, words in (("Job", "running jobs"), ("Resource", "resources"), ("Time", "time"))
    },
    "JobArrayTaskLimit": "waits for other members of its array: as many run as its limit allows",
    "JobHoldMaxRequeue": "held, as it was started again too often: scontrol release {number}",
    "Reservation": "waits for its reservation to begin (scontrol show reservation)",
    "ReservationDeleted": "its reservation no longer exists: cancel it, and submit it again without it",
    "ReservationInvalid": "its reservation is not valid any more: cancel it, and submit it again without it",
    "NodeDown": "{nodes}",
    "MaxPoweredUpNodes": "waits for other nodes to be switched off: the cluster allows no more at once (MaxPoweredUpNodes)",
    "Licenses": "waits for licenses that other jobs have (scontrol show licenses)",
    "NvidiaImexChannels": "waits for channels of NVIDIA's IMEX that other jobs have",
    "MpiPortsBusy": "waits for ports that other jobs have reserved for MPI",
    "BurstBufferResources": "waits for space in the burst buffer (scontrol show burst)",
    "BurstBufferStageIn": "its data are copied to the burst buffer",
    "BurstBufferOperation": "an operation of its burst buffer failed (scontrol show burst)",
    "FedJobLock": "waits for the other clusters of the federation",
    "Prolog": "starts: its nodes are prepared (Prolog)",
    "Cleaning": "its last attempt still ends on its nodes",
    "SystemFailure": "Slurm, its file system or the network failed: slurmctld's log has the reason",
}
"""By Slurm's reason (src/common/job_state_reason.c and doc/html/job_reason_codes.shtml of 25.11.8, 2026-08-18). Slurm keeps it as the
reason of a job that is cancelled meanwhile."""
RETRY_SECONDS = 600
"""After one of `_NO_CAPACITY`, ParallelCluster does not use a compute resource for this time (user guide, fast insufficient capacity
fail-over, 2026-11-24: `insufficient_capacity_timeout`)."""
_NO_CAPACITY = {
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow", "Unsupported",
}  # fmt: skip
_EC2_CODE = re.compile(r"\((Error )?Code: ?(\w{1,60})\)")
"""In ParallelCluster's reason of a node, or PCS's."""
_LONGEST = 200
_LIMIT = re.compile(
    r"(?:(Assoc|QOS)(Grp|Max|Min)|(Max))([A-Za-z]+?)(Run)?(Min(?:ute)?s)?(?:Per(User|Account|Job|Node))?(?:Limit|NotSatisfied)?"
)
"""The reasons of limits of accounting (job_state_reason.c of 25.11.8; job_reason_str of 22.05)."""
_LIMITED = {
    "job": "running jobs", "jobs": "running jobs", "submitjob": "submitted jobs", "submitjobs": "submitted jobs", "cpu": "CPUs",
    "node": "nodes", "mem": "memory", "memory": "memory", "wall": "time", "wallduration": "time", "gres": "devices (GRES)",
    "license": "licenses", "billing": "billing units", "bb": "burst buffer", "energy": "energy", "unknown": "another resource",
}  # fmt: skip
_SLURM: Mapping[str, str] = {
    **dict.fromkeys(
        ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
        "PENDING",
    ),
    **dict.fromkeys(
        ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"),
        "RUNNING",
    ),
    **dict.fromkeys(("NODE_FAIL", "PREEMPTED", "BOOT_FAIL"), "NODE_FAIL"),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "TIMEOUT"),
    **{state: state for state in ("COMPLETED", "CANCELLED", "OUT_OF_MEMORY", "FAILED")},
}
_REASONS = {
    "None": "",
    "NonZeroExitCode": "{failed}",
    "RaisedSignal": "{failed}",
    "OutOfMemory": "needed more memory than it may have",
    "TimeLimit": "reached its time limit",
    "DeadLine": "cannot end before its deadline (--sbatch --deadline)",
    "InactiveLimit": "ended, as it did nothing for longer than Slurm allows (InactiveLimit)",
    "JobLaunchFailure": "{unlaunched}",
    "DependencyNeverSatisfied": "did not run: {before} did not complete",
    **_WAITS,
}
_STOPPED = {"CANCELLED": "", "TIMEOUT": "reached its time limit"}
"""The reasons that a stopped stage records."""
_GOOD = ("PENDING", "RUNNING", "COMPLETED")
_NO_NODES = "None assigned"
"""What sacct prints where a job never had nodes (public outputs of sacct, seen 2026-11)."""

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
    "it ended before it could write its result: a kill, a node that failed, a full file system, or a crash of Slurm's controller. "
    "Submit it again with the same token"
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


class Known(NamedTuple):
    """The facts from which the status of a stage follows.

    Attributes:
        before: the stage before it.
        row: its row of squeue; None if Slurm does not list it.
        state: what the stage has written.
        account: its row of sacct.
        anothers: whether Slurm has given its number to another job.
        cancelled: whether `trn cancel` was run.
        elsewhere: identity of the cluster it was submitted to, if that is another one.
        inactive: why its queue takes no jobs, if that is the reason.
        full: the shared file system, if no block of it is free.
        down: the nodes of its queue that are down.
        blocks: capacity blocks of its queue that are not active.
        next_block: why it waits for another capacity block; empty if it does not.
        cpu: whether its queue has the nodes without Trainium.
    """

    before: Stage | None = None
    row: slurm.Row | None = None
    state: State | None = None
    account: slurm.Account | None = None
    anothers: bool = False
    cancelled: bool = False
    elsewhere: str | None = None
    inactive: str = ""
    full: str = ""
    down: tuple[slurm.Down, ...] = ()
    blocks: tuple[str, ...] = ()
    next_block: str = ""
    cpu: bool = False


def clock(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.timezone.utc):%H:%M} UTC"


def stage(name: str, number: str, known: Known) -> Stage:
    """The status of a stage: from Slurm's queue first, then its accounting, then what the stage has written."""
    found, state = _stage(name, number, known), known.state
    if found.state in ("FAILED", "OUT_OF_MEMORY") and state and state.state == ENDED:
        return replace(found, failed_node=state.failed_node)
    return found


def _stage(name: str, number: str, known: Known) -> Stage:
    state = known.state
    code = state.code if state and state.state == ENDED else None
    if known.row:
        return _of_queue(name, number, known, code)
    found = _of_accounting(name, number, known, code)
    if found:
        return found
    if state and state.state == ENDED:
        return _ended(name, number, known, state, code)
    return _unknown(name, number, known)


def _of_accounting(name: str, number: str, known: Known, code: int | None) -> Stage | None:
    account = known.account
    if account is None:
        return None
    now = "COMPLETED" if code == 0 else _SLURM.get(account.state.partition(" ")[0], "UNKNOWN")
    if now in ACTIVE:  # the controller lost it in a crash, and accounting has it as running for ever
        return None
    if code is None:
        code = parse_int(account.code.partition(":")[0])
    if code == 0 and now != "COMPLETED":  # of what was killed: 0:9, 0:0
        code = None
    reason = _failed(known, code) if now == "FAILED" else ""
    nodes = "" if account.nodes == _NO_NODES else account.nodes
    started = slurm.moment(account.start) if nodes or known.state else None
    return Stage(name, number, now, reason, nodes, code, started, slurm.moment(account.end))


def _ended(name: str, number: str, known: Known, state: State, code: int | None) -> Stage:
    """The status that the stage itself has written."""
    ended = int(state.at)
    if code == 0:
        return Stage(name, number, "COMPLETED", "", state.nodes, code, None, ended)
    if state.why == LOST and not known.cancelled:
        token = "the same" if known.elsewhere is None else "a new"
        return Stage(name, number, "LOST", _LOST_RUNNING.format(token), state.nodes, code, None, ended)
    if state.why in _STOPPED:
        return Stage(name, number, state.why, _STOPPED[state.why], state.nodes, code, None, ended)
    if known.cancelled:
        return Stage(name, number, "CANCELLED", "", state.nodes, code, None, ended)
    return Stage(name, number, "FAILED", _failed(known, code), state.nodes, code, None, ended)


def _unknown(name: str, number: str, known: Known) -> Stage:
    """Describe a stage that Slurm does not know, and that has not written its end."""
    before, state = known.before, known.state
    if before is not None and before.state == "LOST":
        return Stage(name, number, "LOST", f"lost with {before.name}")
    if before is not None and before.state not in _GOOD:
        reason = "" if known.cancelled else _REASONS["DependencyNeverSatisfied"].format(before=before.name)
        return Stage(name, number, "CANCELLED", reason)
    nodes = state.nodes if state else ""
    if known.cancelled:
        return Stage(name, number, "CANCELLED", "", nodes)
    started = int(state.at) if state else None
    if known.elsewhere is not None:
        return Stage(name, number, "UNKNOWN", _ELSEWHERE.format(known.elsewhere), nodes, None, started)
    if state and known.anothers:
        return Stage(name, number, "LOST", _LOST_RUNNING.format("the same"), nodes, None, started)
    if state:
        return Stage(name, number, "FAILED", _failed(known, None), nodes, None, started)
    return Stage(name, number, "LOST", _LOST.format(number) if known.anothers else _FORGOTTEN)


def _of_queue(name: str, number: str, known: Known, code: int | None) -> Stage:
    row, state, before = known.row, known.state, known.before
    assert row is not None  # noqa: S101  checked by the caller
    current, reason = _SLURM.get(row.state, "UNKNOWN"), row.reason.split(",")[0]
    ended_at = int(state.at) if state and state.state == ENDED else None
    started = slurm.moment(row.start) or (int(state.at) if state and state.state == RUNNING else None)
    ended = slurm.moment(row.end) or ended_at
    if current in ACTIVE:
        ended, code = None, None
    if current == "PENDING" or (current == "CANCELLED" and not row.nodes and state is None):
        started = None  # of what was cancelled before it began, Slurm tells the end
    if current == "CANCELLED" and before is not None and before.state not in _GOOD:
        reason = "DependencyNeverSatisfied"
    if current == "FAILED" and code is None and known.cancelled:
        current, reason = "CANCELLED", "None"
    if code == 0:
        # started again or cancelled by a controller that had crashed and forgotten that it completed; such a start may fail
        current, reason = "COMPLETED", "None"
    if current == "CANCELLED" and reason == "DependencyNeverSatisfied" and before and before.state == "COMPLETED":
        return Stage(name, number, "LOST", _LOST_DEPENDENCY.format(before=before.name))
    if reason in _WAITS and current != "PENDING":
        reason = "None"
    text = _reason(number, known, current, reason, started, code)
    return Stage(name, number, current, text, row.nodes or (state.nodes if state else ""), code, started, ended)


def _reason(number: str, known: Known, current: str, reason: str, started: int | None, code: int | None) -> str:
    row, state, before = known.row, known.state, known.before
    assert row is not None  # noqa: S101  checked by the caller
    if row.state == "SUSPENDED":
        return f"suspended by an administrator: scontrol resume {number} continues it"
    if reason not in _REASONS:
        return (limit(reason) if current == "PENDING" else "") or row.reason
    # a script that a signal killed has JobLaunchFailure, too (Slurm 22.05); the file of an earlier attempt is older (5 s: of two clocks)
    begun = state is not None and state.state == RUNNING and state.at >= (started or 0) - 5
    text = row.reason
    return _REASONS[reason].format(
        before=before.name if before else "the job before it (--after)",
        failed=_failed(known, code),
        unlaunched=_failed(known, code) if code is not None or begun else _UNLAUNCHED.format(row.nodes),
        # of members, none is released (`answers.start_requeued`)
        held=f"is held: scontrol release {number}" if "_" in number else "is retried",
        inactive=known.inactive,
        number=number,
        nodes=for_nodes(known, text),
        begins=known.next_block or (f"starts again in a moment{lost_node(known)}" if state else "starts in a moment"),
    )


def _failed(known: Known, code: int | None) -> str:
    state = known.state
    if code is not None:
        several = state and state.failed_node is not None and re.search(r"[\[,]", state.nodes)
        return f"exit code {code}, on node {state.failed_node} first" if state and several else f"exit code {code}"
    if known.full:
        return _FULL.format(known.full)
    return _KILLED if state else _NOT_BEGUN


# --- why it waits ----------------------------------------------------------------------------------------------------------------------


def limit(reason: str) -> str:
    """A limit of a QoS or an account, which an administrator has set: Slurm starts the job when it allows that. Empty: it is none."""
    found = _LIMIT.fullmatch(reason)
    limited = _LIMITED.get(found[4].lower()) if found else None
    if found is None or limited is None:
        return ""
    of, show = ("its account", "assoc") if found[1] == "Assoc" else ("its QoS", "qos")
    what = f"minutes of {limited}" if found[6] else limited
    if found[5]:
        what += " of running jobs"
    elif found[6] and found[2] == "Grp":
        what += ", used up"
    if found[2] == "Min":
        return f"requests less than its QoS demands: {what} ({reason}; sacctmgr show {show})"
    if found[7] in ("Job", "Node"):
        return f"requests more than {of} allows: {what} of each {found[7].lower()} ({reason}; sacctmgr show {show})"
    each = f" of each {found[7].lower()}" if found[7] else " together" if found[2] == "Grp" else ""
    return f"waits for a limit of {of}: {what}{each} ({reason}; sacctmgr show {show})"


def lost_node(known: Known) -> str:
    """The nodes that are down, if the stage has lost one of them."""
    return next((f": {down.nodes[:_LONGEST]} is down ({down.reason[:_LONGEST]})" for down in known.down), "")


def for_nodes(known: Known, reason: str) -> str:
    """Describe why nodes are not there: what EC2 reported for those that could not be started, or what Slurm says of those that are down.

    The client adds what EC2's code means: `; EC2 reported CODE` is how it finds it.
    """
    behind = reason == "Priority"
    if known.next_block and not behind:
        return known.next_block
    if known.blocks and not behind:
        return f"waits for capacity block {known.blocks[0]}, which is not active: it has not begun, or it has ended; `trn why STACK` tells which"
    waits = _waits(known, reason)
    refused = [down for down in known.down if _EC2_CODE.search(down.reason)]
    for down in (refused or (() if behind else known.down))[:1]:
        code = _EC2_CODE.search(down.reason)
        if code is None:
            return f"{waits}; {down.nodes[:_LONGEST]} is down: {down.reason[:_LONGEST]}"
        since = slurm.moment(down.since)
        at = f" at {clock(since)}" if since else ""
        again = ""
        if since and not code[1] and code[2] in _NO_CAPACITY:
            again = f", and ParallelCluster tries again at {clock(since + RETRY_SECONDS)}"
        return f"{waits}; EC2 reported {code[2]} for {down.nodes[:_LONGEST]}{at}{again}"
    return waits


def _waits(known: Known, reason: str) -> str:
    if reason.startswith("ReqNodeNotAvail") and "Reserved" in reason:
        return "waits for nodes that are reserved (scontrol show reservation)"
    if reason == "Priority":
        return "waits behind other jobs"
    if reason == "NodeDown":
        return "waits for a node that is down"
    return "waits for a CPU node" if known.cpu else "waits for nodes"
