"""The nodes of a Slurm cluster, as its controller sees them: the script that asks, and the parser of its output. Pure."""

from __future__ import annotations

import re

from trainium_cdk.jobs.slurm.status import moment
from trainium_cdk.jobs.status import Node
from trainium_cdk.outputs import SlurmCluster

SCRIPT = """export LC_ALL=C.UTF-8 TZ=UTC
unset "${!SQUEUE_@}" "${!SCONTROL_@}" SLURM_TIME_FORMAT
scontrol -o show node || exit 5
# without an answer, no node would have a job
jobs=$(squeue -h -a -o '%N|%j') || exit 5
while IFS='|' read -r list name; do
  if [ -z "$list" ]; then continue; fi
  for node in $(scontrol show hostnames "$list"); do printf 'trn-job %s %s\\n' "$node" "$name"; done
done <<< "$jobs"
"""
_OFF = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
"""POWER_DOWN is none: such a node is powered down when its job has ended."""


def parse(text: str, cluster: SlurmCluster) -> tuple[Node, ...]:
    """The nodes in the output of `SCRIPT`, in its order. Lines of anything else are ignored."""
    jobs: dict[str, str] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(" ")
        if key == "trn-job":
            node, _, job = rest.partition(" ")
            jobs[node] = job
    return tuple(_node(line, cluster, jobs) for line in text.splitlines() if line.startswith("NodeName="))


def _node(line: str, cluster: SlurmCluster, jobs: dict[str, str]) -> Node:
    name = _value("NodeName", line)
    states = _value("State", line).rstrip("*$%@^~#!-").split("+")
    reason = re.search(r" Reason=(.*?)(?: \[[^\]]*\])?$", line.rstrip())
    fleets = [
        f
        for f in cluster.every_fleet
        # PCS names no kind, and its CPU nodes have the queue's name alone
        if re.match(rf"{re.escape(f.queue)}-(?:(?:(?:dy|st)-)?{re.escape(f.resource)}-)?\d+$", name)
    ]
    return Node(
        name=name,
        queue=_value("Partitions", line).partition(",")[0] or (fleets[0].queue if fleets else ""),
        instance_type=fleets[0].instance_type if fleets else "",
        state="+".join(states).lower(),
        job=jobs.get(name, ""),
        reason=reason[1] if reason else "",
        address=_value("NodeAddr", line),
        booted=moment(_value("BootTime", line)),
        on=not _OFF & set(states),
    )


def _value(key: str, line: str) -> str:
    found = re.search(rf"(?:^| ){key}=(\S*)", line)
    return found[1] if found else ""
