"""A cluster's nodes as Slurm's controller sees them, and what others than `trn` run on them."""

from __future__ import annotations

import re

from .. import slurm
from ..errors import Refused
from ..records import one_line
from ..requests import Cluster, ListNodes, Others
from ..status import Foreign, Node, parse_int
from ..work import devices
from .stages import moment

_OFF = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
"""POWER_DOWN is none: such a node is powered down when its job has ended."""
_WAIT = frozenset({"PENDING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_REST = r"(?: [A-Z][a-z]\w*=.*)?$"
"""Keys in a node's line after a text: Slurm 25.11 prints Comment, Extra, InstanceId, InstanceType, ReservationName and more there."""


def list_nodes(_: Cluster, __: ListNodes) -> list[Node]:
    """The nodes, in the controller's order. Which instance type one has, only the client knows."""
    # Slurm may start a job on the nodes of a suspended one: the job that runs is shown
    last = sorted((row for row in slurm.rows(others=True) if row.nodes), key=lambda row: row.state != "SUSPENDED")
    jobs = {node: one_line(row.name) for row in last for node in slurm.hostnames(row.nodes)}
    lines = slurm.run("scontrol", "-o", "show", "node").splitlines()
    if not lines and "nodes" in slurm.private():
        raise Refused("Slurm shows nodes only to administrators here (PrivateData=nodes). Root lists them with sinfo")
    return [_node(line, jobs) for line in lines if line.startswith("NodeName=")]


def others(_: Cluster, __: Others) -> list[Foreign]:
    """The jobs of Slurm's queue that are none of `trn`'s, in its order."""
    found = []
    for row in slurm.everybody():
        if not row.id:
            waits = row.state in _WAIT
            state, began = ("PENDING", None) if waits else ("RUNNING", moment(row.start))
            texts = map(one_line, (row.label, row.queue, row.user))
            name, queue, user = texts
            found.append(
                Foreign(name, "sbatch", state, queue, moment(row.submitted), user, began, parse_int(row.count))
            )
    return found


def _node(line: str, jobs: dict[str, str]) -> Node:
    name = slurm.field("NodeName", line)
    states = slurm.field("State", line).rstrip("*$%@^~#!-").split("+")
    reason = re.search(rf" Reason=(.*?)(?: \[[^\]]*\])?{_REST}", line.rstrip())
    comment = re.search(rf" Comment=({devices.MARK} .*?){_REST}", line.rstrip())
    told = reason or comment  # what root has found, as root writes it
    return Node(
        name=name,
        queue=slurm.field("Partitions", line).partition(",")[0],
        instance_type="",
        state="+".join(states).lower(),
        job=jobs.get(name, ""),
        reason=devices.words(told[1]) if told else "",
        address=slurm.field("NodeAddr", line),
        booted=moment(slurm.field("BootTime", line)),
        on=not _OFF & set(states),
        instance=slurm.field("InstanceId", line),
    )
