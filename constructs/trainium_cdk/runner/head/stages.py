"""The status of a stage of a Slurm job, from what is known of it.

Slurm forgets ended jobs after minutes, and in a crash of its controller everything that it had not saved. So there are three sources, as none
has everything: Slurm's queue, what the stage has written (incomplete if it was killed), and Slurm's accounting (if there is any).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..records import ENDED, LOST, RUNNING, State
from . import waits
from .known import Known, moment
from .status import ACTIVE, Stage, parse_int

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
    **waits.WAITS,
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
    started = moment(account.start) if nodes or known.state else None
    return Stage(name, number, now, reason, nodes, code, started, moment(account.end))


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
    """Of a stage that Slurm does not know, and that has not written its end."""
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
        return Stage(name, number, "FAILED", _KILLED, nodes, None, started)
    return Stage(name, number, "LOST", _LOST.format(number) if known.anothers else _FORGOTTEN)


def _of_queue(name: str, number: str, known: Known, code: int | None) -> Stage:
    row, state, before = known.row, known.state, known.before
    assert row is not None  # noqa: S101  checked by the caller
    current, reason = _SLURM.get(row.state, "UNKNOWN"), row.reason.split(",")[0]
    ended_at = int(state.at) if state and state.state == ENDED else None
    started = moment(row.start) or (int(state.at) if state and state.state == RUNNING else None)
    ended = moment(row.end) or ended_at
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
    stopped = current == "CANCELLED" and not known.cancelled
    if stopped and code and state and started and ended_at and started <= ended_at:
        # it had ended; a recovered controller had forgotten that, and the stage was cancelled to end it
        return _ended(name, number, known, state, code)
    if reason in waits.WAITS and current != "PENDING":
        reason = "None"
    text = _reason(number, known, current, reason, started, code)
    return Stage(name, number, current, text, row.nodes or (state.nodes if state else ""), code, started, ended)


def _reason(number: str, known: Known, current: str, reason: str, started: int | None, code: int | None) -> str:
    row, state, before = known.row, known.state, known.before
    assert row is not None  # noqa: S101  checked by the caller
    if row.state == "SUSPENDED":
        return f"suspended by an administrator: scontrol resume {number} continues it"
    if reason not in _REASONS:
        return (waits.limit(reason) if current == "PENDING" else "") or row.reason
    # a script that a signal killed has JobLaunchFailure, too (Slurm 22.05); the file of an earlier attempt is older (5 s: of two clocks)
    begun = state is not None and state.state == RUNNING and state.at >= (started or 0) - 5
    text = row.reason
    return _REASONS[reason].format(
        before=before.name if before else "the job before it (--after)",
        failed=_failed(known, code),
        unlaunched=_failed(known, code) if code is not None or begun else _UNLAUNCHED.format(row.nodes),
        # only the stages of jobs are released (`repair`)
        held=f"is held: scontrol release {number}" if "_" in number else "is retried",
        inactive=known.inactive,
        number=number,
        nodes=waits.for_nodes(known, text),
        begins=f"starts again in a moment{waits.lost_node(known)}" if state else "starts in a moment",
    )


def _failed(known: Known, code: int | None) -> str:
    state = known.state
    if code is not None:
        several = state and state.failed_node is not None and re.search(r"[\[,]", state.nodes)
        return f"exit code {code}, on node {state.failed_node} first" if state and several else f"exit code {code}"
    if state:
        return _KILLED
    return _FULL.format(known.full) if known.full else _NOT_BEGUN
