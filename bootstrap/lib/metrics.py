"""Metrics of a node, one line of CloudWatch's embedded metric format (EMF) a minute, for the CloudWatch agent to send.

    metrics.py CLUSTER LOG [--queue] [--disks PATH ...] [--once]

A compute node tells of its NeuronCores, Neuron and host memory, errors, EFA traffic and disks: from `neuron-monitor`, the kernel's
counters of EFA and statvfs. With --queue (the node that has Slurm's commands and stays): of the cluster's jobs and nodes as well, and a line for
each job that has ended, or that makes no progress, which `TrnJobNotices` sends on.
What cannot be read is left out of the line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

NAMESPACE = "Trainium"
PERIOD = 60
LARGEST = 4 << 20
"""Bytes of the log before it is renamed; the agent reads the renamed file to its end."""
MONITOR = "/opt/aws/neuron/bin/neuron-monitor"
CONFIGURATION = {
    "period": f"{PERIOD}s",
    "neuron_runtimes": [
        {
            "tag_filter": ".*",
            "metrics": [{"type": t} for t in ("neuroncore_counters", "memory_used", "execution_stats")],
        }
    ],
    "system_metrics": [{"type": "memory_info"}, {"type": "neuron_hw_counters"}],
}
EFA = Path("/sys/class/infiniband")
RECEIVED, SENT = (
    ("rx_bytes", "rdma_write_recv_bytes", "rdma_read_bytes"),
    ("tx_bytes", "rdma_write_bytes", "rdma_read_resp_bytes"),
)
UNITS = {
    "NeuronCoreUtilization": "Percent",
    "NeuronMemoryUsed": "Percent",
    "HostMemoryUsed": "Percent",
    "DiskUsed": "Percent",
    "EfaReceived": "Bytes/Second",
    "EfaSent": "Bytes/Second",
    "LongestWait": "Seconds",
}
"""The others' is Count."""
_WAITS_FOR_OTHERS = (
    "Dependency",
    "DependencyNeverSatisfied",
    "BeginTime",
    "JobHeldUser",
    "JobHeldAdmin",
    "JobArrayTaskLimit",
)
_BUSY, _STARTING = ("ALLOCATED", "MIXED", "COMPLETING"), ("POWERING_UP", "CONFIGURING", "REBOOT_ISSUED")
_FAILED = ("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "INVALID_REG")
COUNTS = ("NodesBusy", "NodesIdle", "NodesStarting", "NodesFailed")
_OFF = ("POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN")


def line(values, dimensions, now, **properties):
    """One EMF document. `dimensions`: sets of names of properties."""
    metrics = [{"Name": name, "Unit": UNITS.get(name, "Count")} for name in values]
    sets = [{"Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": metrics}]
    return json.dumps({"_aws": {"Timestamp": int(now * 1000), "CloudWatchMetrics": sets}, **properties, **values})


def neuron(report):
    """Metrics in one report of neuron-monitor. A device's utilization is the mean of its cores: EMF takes 100 values of a metric at
    most, and an instance has up to 128 cores."""
    hardware, system = report.get("neuron_hardware_info") or {}, report.get("system_data") or {}
    devices = int(hardware.get("neuron_device_count") or 0)
    each = int(hardware.get("neuroncore_per_device_count") or 0) // int(hardware.get("logical_neuroncore_config") or 1)
    found, used, errors, memory = {}, {}, 0, 0
    for runtime in report.get("neuron_runtime_data") or []:
        said = runtime.get("report") or {}
        used.update((said.get("neuroncore_counters") or {}).get("neuroncores_in_use") or {})
        errors += sum(((said.get("execution_stats") or {}).get("error_summary") or {}).values())
        memory += ((said.get("memory_used") or {}).get("neuron_runtime_used_bytes") or {}).get("neuron_device") or 0
    if devices and each:
        load = [0.0] * devices
        for core, counters in used.items():
            if int(core) // each < devices:
                load[int(core) // each] += counters["neuroncore_utilization"] / each
        found["NeuronCoreUtilization"] = [round(x, 2) for x in load]
        size = devices * int(hardware.get("neuron_device_memory_size") or 0)
        found.update({"NeuronMemoryUsed": round(100 * memory / size, 2)} if size else {})
        found["ExecutionErrors"] = errors
    ecc = (system.get("neuron_hw_counters") or {}).get("neuron_devices") or []
    if ecc:
        found["UncorrectedMemoryErrors"] = sum(
            d.get("mem_ecc_uncorrected", 0) + d.get("sram_ecc_uncorrected", 0) for d in ecc
        )
    host = system.get("memory_info") or {}
    if host.get("memory_total_bytes"):
        found["HostMemoryUsed"] = round(100 * host["memory_used_bytes"] / host["memory_total_bytes"], 2)
    return found


def efa(root=EFA):
    """Bytes received and sent by all EFA devices since boot; None without EFA."""
    ports = list(root.glob("*/ports/*/hw_counters"))

    def total(names):
        return sum(int((p / n).read_text()) for p in ports for n in names if (p / n).exists())

    return (total(RECEIVED), total(SENT)) if ports else None


def disks(paths):
    """How full the fullest of these file systems is, percent: as df(1), without what is kept for root."""
    used = []
    for path in paths:
        try:
            s = os.statvfs(path)
        except OSError:
            continue
        if s.f_blocks > s.f_bfree or s.f_bavail:
            used.append(100 * (s.f_blocks - s.f_bfree) / (s.f_blocks - s.f_bfree + s.f_bavail))
    return {"DiskUsed": round(max(used), 2)} if used else {}


def state(word):
    """busy, idle, starting or failed; empty for a node that is off, or that will be shortly. `word`: Slurm's StateComplete."""
    states = set(word.upper().rstrip("*$%@^~#!-").split("+"))
    if states & set(_FAILED):
        return "Failed"
    if states & set(_OFF):
        return ""
    return "Starting" if states & set(_STARTING) else "Busy" if states & set(_BUSY) else "Idle"


def queue(nodes, jobs, now):
    """Metrics of the cluster, and of each queue by its name, from the output of NODES and JOBS. A stage that waits for another one,
    or that its owner holds, waits for no node: the time until it may run is not part of its wait."""
    queues, waits, running = {}, [], 0
    for _name, partition, word in dict.fromkeys(
        tuple(row.split()[:3]) for row in nodes.splitlines() if len(row.split()) > 2
    ):
        counts = queues.setdefault(partition.rstrip("*"), dict.fromkeys(COUNTS, 0))
        if state(word):
            counts[f"Nodes{state(word)}"] += 1
    for row in jobs.splitlines():
        what, reason, eligible = ([*map(str.strip, row.split("|")), "", ""])[:3]
        running += what == "RUNNING"
        if what == "PENDING" and reason not in _WAITS_FOR_OTHERS and (since := seconds(eligible)) is not None:
            waits.append(max(0, int(now - since)))
    total = {n: sum(of[n] for of in queues.values()) for n in COUNTS}  # a node in two queues counts in both
    return {"JobsRunning": running, "JobsWaiting": len(waits), "LongestWait": max(waits, default=0), **total}, queues


NODES = ("sinfo", "-h", "-N", "-a", "-O", "NodeList:80 ,Partition:40 ,StateComplete:80")
ENDED = ("squeue", "-h", "-a", "-t", "all")
"""All jobs that Slurm remembers: it forgets those that ended minutes ago (MinJobAge, 300 s by default)."""
_FIELDS = ("%F", "%T", "%r", "%S", "%e", "%D", "%u", "%P", "%k", "%j")
_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
_STAGES = ("prepare", "precompile", "train")
_ID = re.compile("[A-Za-z0-9][A-Za-z0-9.-]{0,89}")
_KINDS = re.compile("[a-z]{1,20}(,[a-z]{1,20}){0,9}")
JOBS = ("squeue", "-h", "-a", "-t", "PENDING,RUNNING", "-O", "State:20|,Reason:80|,EligibleTime:20")


def ended(said, mark, since, until):
    """The jobs of `trn` whose last stage has ended after `since`, and not after `until` (whole seconds since 1970), from the output of ENDED with
    `form(mark)`. A job has up to three stages: the first one that ended badly counts. Members of an array count together."""
    jobs = {}
    for row in said.split(mark)[1:]:
        told = row.rstrip("\n").split("\x1f")
        id, _, stage = told[-1].rpartition(":")
        if _is_ours(told, id, stage):
            jobs.setdefault((told[6], id), {}).setdefault(stage, {}).setdefault(int(told[0]), []).append(told)
    found = []
    for (user, id), stages in jobs.items():
        last = {stage: of[max(of)] for stage, of in stages.items()}  # an older one of that name was lost
        rows = [row for of in last.values() for row in of]
        at = max((seconds(row[4]) or 0 for row in rows), default=0)
        if any(row[1] not in _OVER for row in rows) or not since < at <= until:
            continue
        bad = [stage for stage in _STAGES if any(row[1] != "COMPLETED" for row in last.get(stage, ()))]
        if not bad and "train" not in last:
            continue
        members = last[(bad or ["train"])[0]]
        counts = {state: sum(row[1] == state for row in members) for state in _OVER}
        states = [f"{n} {state}" if len(members) > 1 else state for state, n in counts.items() if n]
        begun = [second for row in rows if (second := seconds(row[3])) and second <= at]
        reason = "" if members[0][2] in ("None", "NonZeroExitCode") else members[0][2]
        one = {"JobEnded": id, "State": ", ".join(states), "User": user, "Queue": members[0][7], "Nodes": members[0][5]}
        found.append({**one, "Seconds": at - min(begun, default=at), **({"Reason": reason} if reason else {})})
    return found


def _is_ours(told, id, stage):
    """Whether a row is of a stage of `trn`. What is wrong with it may follow in its comment."""
    return (
        len(told) == len(_FIELDS)
        and stage in _STAGES
        and told[-2].partition(" ")[0] == f"trn:{id}"
        and _ID.fullmatch(id)
    )


def wrong(said, mark):
    """What is wrong with the jobs of `trn` that run, as their runner has written into their comment, from the output of ENDED with `form(mark)`: a
    line for each job and kind, by both and the job's user."""
    found = {}
    for row in said.split(mark)[1:]:
        told = row.rstrip("\n").split("\x1f")
        id, _, stage = told[-1].rpartition(":")
        if _is_ours(told, id, stage) and told[1] == "RUNNING":
            kinds = told[-2].partition(" ")[2]
            for kind in kinds.split(",") if _KINDS.fullmatch(kinds) else ():
                one = {"JobFound": id, "Found": kind, "State": "RUNNING", "User": told[6]}
                found[f"{told[6]} {id} {kind}"] = {**one, "Queue": told[7], "Nodes": told[5]}
    return found


def form(mark):
    """The format of squeue. No name has a mark of this moment, so that none imitates a row."""
    return mark + "\x1f".join(_FIELDS)


def seconds(text):
    """A time of Slurm's in UTC, in seconds since 1970; None if it is not known."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())  # noqa: UP017  Python 3.9
    except ValueError:
        return None


def tell_ends(given, now):
    """Write a line for each job that has ended since the last look, whose time is kept in a file next to the log; and for what is wrong since then
    with one that runs."""
    mark, kept, until = secrets.token_hex(8), given.log.with_suffix(".ends"), int(now) - 1  # of a second that is over
    said = asked((*ENDED, "-o", form(mark)))
    if said is None:
        return
    try:
        since = int(kept.read_text())
    except (OSError, ValueError):
        since = until
    kept.write_text(str(until))
    for one in [*ended(said, mark, since, until), *_new(wrong(said, mark), given.log.with_suffix(".found"))]:
        write(given.log, json.dumps({**one, "Cluster": given.cluster}))


def _new(found, kept):
    """What was not there at the last look, whose names are in a file."""
    try:
        before = set(kept.read_text().split("\n"))
    except (OSError, ValueError):
        before = set()
    kept.write_text("\n".join(found))
    return [one for name, one in found.items() if name not in before]


def asked(command):
    """The output of a command of Slurm; None if it fails."""
    try:
        env = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PERIOD - 10, check=True, env=env)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"trn-metrics: {command[0]}: {error}", file=sys.stderr)
        return None
    return done.stdout


def reports(once=False):
    """Reports of neuron-monitor, one a period; empty ones where there is no such program. They end when the program ends."""
    if not shutil.which(MONITOR):
        while True:
            yield {}
            if once:
                return
            time.sleep(PERIOD)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(CONFIGURATION, file)
        file.flush()
        with subprocess.Popen([MONITOR, "-c", file.name], stdout=subprocess.PIPE, text=True) as program:
            for said in program.stdout:
                yield json.loads(said)
                if once:
                    program.terminate()


def write(path, text):
    if path.exists() and path.stat().st_size > LARGEST:
        path.replace(path.with_suffix(".log.1"))
    with path.open("a") as log:
        log.write(text + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cluster")
    parser.add_argument("log", type=Path)
    parser.add_argument("--queue", action="store_true")
    parser.add_argument("--disks", nargs="*", default=[])
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    node, before, ecc = os.uname().nodename.partition(".")[0], None, None
    for report in reports(given.once):
        now, found = time.time(), {**neuron(report), **disks(["/", *given.disks])}
        counted = found.pop("UncorrectedMemoryErrors", None)  # since the driver was loaded
        if counted is not None:
            found["UncorrectedMemoryErrors"] = max(0, counted - (counted if ecc is None else ecc))
            ecc = counted
        traffic = efa()
        if traffic and before:
            seconds = max(1, now - before[1])
            for name, new, old in zip(("EfaReceived", "EfaSent"), traffic, before[0]):  # noqa: B905  Python 3.9
                found[name] = round(max(0, new - old) / seconds)
        before = (traffic, now) if traffic else None
        if found:
            write(given.log, line(found, [["Cluster"], ["Cluster", "Node"]], now, Cluster=given.cluster, Node=node))
        nodes, jobs = (asked(NODES), asked(JOBS)) if given.queue else (None, None)
        if nodes is not None and jobs is not None:
            whole, queues = queue(nodes, jobs, now)
            write(given.log, line(whole, [["Cluster"]], now, Cluster=given.cluster))
            for name, counts in queues.items():
                write(given.log, line(counts, [["Cluster", "Queue"]], now, Cluster=given.cluster, Queue=name))
        if given.queue:
            tell_ends(given, time.time())


if __name__ == "__main__":
    main()
