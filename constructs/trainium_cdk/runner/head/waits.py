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
    if reason == "NodeDown":
        return "waits for a node that is down"
    return "waits for a CPU node" if known.cpu else "waits for nodes"
