"""Why a stage waits, in words: Slurm's reasons, limits of accounting, and nodes that are not there."""

from __future__ import annotations

import re

from .known import Known, clock, moment

WAITS = {
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
"""By Slurm's reason. Slurm keeps it as the reason of a job that is cancelled meanwhile."""
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


def limit(reason: str) -> str:
    """A limit of a QoS or an account, which an administrator has set: Slurm starts the job when it allows that. Empty: it is none."""
    found = _LIMIT.fullmatch(reason)
    if found is None:
        return ""
    each = next((f" of each {who.lower()}" for who in ("User", "Account", "Job") if f"Per{who}" in reason), "")
    of, show = ("its QoS", "qos") if found[1] == "QOS" else ("its account", "assoc")
    together = " together" if found[2] == "Grp" else ""
    return f"waits for a limit of {of}: {_LIMITED.get(found[3], found[3])}{each}{together} ({reason}; sacctmgr show {show})"


def lost_node(known: Known) -> str:
    """The nodes that are down, of which the stage has lost one."""
    return next((f": {down.nodes[:_LONGEST]} is down ({down.reason[:_LONGEST]})" for down in known.down), "")


def for_nodes(known: Known, reason: str) -> str:
    """Why nodes are not there: what EC2 reported for those that could not be started, or what Slurm says of those that are down.

    The client adds what EC2's code means: `; EC2 reported CODE` is how it finds it.
    """
    behind = reason == "Priority"
    if known.blocks and not behind:
        return f"waits for capacity block {known.blocks[0]}, which is not active: it has not begun, or it has ended; `trn why STACK` tells which"
    waits = _waits(known, reason)
    refused = [down for down in known.down if _EC2_CODE.search(down.reason)]
    for down in (refused or (() if behind else known.down))[:1]:
        code = _EC2_CODE.search(down.reason)
        if code is None:
            return f"{waits}; {down.nodes[:_LONGEST]} is down: {down.reason[:_LONGEST]}"
        since = moment(down.since)
        at = f" at {clock(since)}" if since else ""
        again = ""
        if since and not code[1] and code[2] in _NO_CAPACITY:
            again = f", and ParallelCluster tries again at {clock(since + RETRY_SECONDS)}"
        return f"{waits}; EC2 reported {code[2]} for {down.nodes[:_LONGEST]}{at}{again}"
    return waits


def _waits(known: Known, reason: str) -> str:
    if reason.startswith("ReqNodeNotAvail") and "Reserved" in reason:
        return "waits for nodes that are reserved (scontrol show reservation)"
    if reason.startswith("ReqNodeNotAvail") and known.before is not None and known.before.name == "precompile":
        return "waits for the nodes that compiled: at least one is down or taken (ReqNodeNotAvail)"
    if reason == "Priority":
        return "waits behind other jobs"
    return "waits for a CPU node" if known.cpu else "waits for nodes"
