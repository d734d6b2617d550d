"""Nodes as Slurm's controller sees them: the nodes of a stage, with the problems that root has found on them, and the response of the job; the nodes
of a cluster, for `trn nodes`.

Root measures (`bootstrap/lib/devices.py`), and writes the comment and the reason of a node, which no job can. Here they are only read. The record
of how often a job has moved lies in its own folder: with it, a job can end only itself.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from . import files, records, slurm
from .errors import Later, Refused
from .readers import Finding
from .records import one_line
from .requests import Cluster, ListNodes, Others
from .status import Foreign, Node, parse_int

MARK = "trn-devices"
DEVICE = "device"
ALIKE = ("disk", "memory", "log")
"""Kinds for which nodes have one finding together. Its evidence is another one only when it is of other nodes, or of other disks."""
IN_A_ROW = 3
"""Nodes of a job that break one after the other, without a new step between: then its program is at fault."""
_FOUND = re.compile(r"([0-9]{1,12}) (device|disk|memory|log) (.{1,900})")
_BAR = "\x1f"
_SHOWN = 4
_LOOKS_BROKEN = re.compile(
    r"HW_ERR|[Uu]ncorrect|NRT_HW_ERROR|NRT_EXEC_(UNIT_UNRECOVERABLE|COMPLETED_WITH_ERR)|hardware error"
    r"|NRT EXECUTION FAILED: .{0,300}(Hardware failure|parity error|DMA engine|status: 101|completed with errors)"
)
"""Lines of the Neuron runtime, and in TorchNeuron's words."""
_SECONDS = 10
"""For an answer of Slurm's controller: whoever asks has other work."""
WAIT_SECONDS = 30
"""After a failure that looks like a device's, for what root finds: it looks each 10 seconds."""


@dataclass(frozen=True)
class SlurmNode:
    """A node of the stage, as Slurm knows it. `lost`: whether root has taken it away from jobs, for a device error."""

    number: int
    name: str
    findings: tuple[records.TimedFinding, ...] = ()
    lost: bool = False


@dataclass(frozen=True)
class Moved:
    """The number of times that a job has left a broken node, without a step after `step`; `nodes`: which ones."""

    count: int = 0
    step: Optional[int] = None
    nodes: str = ""


def look(nodes: str) -> list[SlurmNode]:
    """The nodes of a stage, in its order.

    Args:
        nodes: Slurm's list of them.

    Raises:
        Later, Refused: Slurm does not tell.
    """
    names = slurm.run("scontrol", "show", "hostnames", nodes, seconds=_SECONDS).split()
    # each field with its width, and a mark that no text has
    fields = f"NodeList:200{_BAR},StateComplete:100{_BAR},Comment:1000{_BAR},Reason:1000{_BAR}"
    said = slurm.run("sinfo", "-h", "-a", "-N", "-n", nodes, "-O", fields, seconds=_SECONDS)
    told = {}
    for line in said.splitlines():
        name, state, comment, reason = [*map(str.strip, line.split(_BAR)), "", "", "", ""][:4]
        told[name] = (state, comment, reason)
    return [read(number, name, *told.get(name, ("", "", ""))) for number, name in enumerate(names)]


def read(number: int, name: str, state: str, comment: str, reason: str) -> SlurmNode:
    """A node, from its state, comment and reason."""
    found = []
    for text in comment.removeprefix(MARK).split("|") if comment.startswith(f"{MARK} ") else ():
        if told := _FOUND.fullmatch(text.strip()):
            found.append(Finding(told[2], float(told[1]), number, evidence=f"{name}: {records.one_line(told[3])}"))
    lost = "drain" in state.lower() and reason.startswith(f"{MARK} ")
    return SlurmNode(number, name, tuple(found), lost)


def findings(nodes: Sequence[SlurmNode]) -> list[Finding]:
    """List the problems of nodes: each device error, and one finding for each other kind. A full file system is full on all nodes that share it."""
    every = [one for node in nodes for one in node.findings]
    found = [one for one in every if one.kind == DEVICE]
    for kind in ALIKE:
        if same := [one for one in every if one.kind == kind]:
            more = f"; and {len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
            text = "; ".join(one.evidence for one in same[:_SHOWN]) + more
            found.append(dataclasses.replace(same[0], at=min(one.at for one in same), evidence=text))
    return found


def words(text: str) -> str:
    """A comment or reason of root's for people; another's stays as it is.

    >>> words("trn-devices 1795816028 device neuron1/mem 0 to 2"), words("a person works on it")
    ('has a device error since 2026-11-27 21:47 UTC: neuron1/mem 0 to 2', 'a person works on it')
    """
    found = read(0, "", "", text, "").findings
    return "; ".join(dataclasses.replace(one, evidence=one.evidence[2:]).text for one in found) or text


def stage_nodes() -> str:
    """Slurm's list of the nodes of this stage; empty where there is no Slurm."""
    return os.environ.get("SLURM_JOB_NODELIST", "")


def nodes_now(before: Sequence[SlurmNode] = ()) -> Sequence[SlurmNode]:
    """The nodes of this stage; none where there is no Slurm. Where it does not answer: what it said `before`."""
    nodes = stage_nodes()
    try:
        return look(nodes) if nodes else ()
    except (Later, Refused):
        return before


def looks_broken(lines: str) -> bool:
    """Return whether an output speaks of a device error. It is a reason to wait for root's findings, and no more.

    >>> looks_broken("NRT_EXEC_HW_ERR_HBM_UE"), looks_broken("NRT EXECUTION FAILED: A DMA engine encountered"), looks_broken("ValueError: shape")
    (True, True, False)
    """
    return _LOOKS_BROKEN.search(lines) is not None


def why(lost: list[SlurmNode]) -> str:
    """Describe the device errors of lost nodes in one sentence."""
    told = [one.evidence for node in lost for one in node.findings if one.kind == DEVICE]
    return f"a device error: {'; '.join(told) or ', '.join(node.name for node in lost)}"


def moved(job: Path) -> Moved:
    return records.read(Moved, job / "state" / "moved.json") or Moved()


def move(job: Path, lost: list[SlurmNode], step: Optional[int]) -> Moved:
    """Note that the job leaves these nodes. Returns how often it has."""
    before = moved(job)
    new = step is not None and (before.step is None or step > before.step)
    count, names = (1, "") if new else (before.count + 1, before.nodes)
    told = ", ".join(filter(None, (names, *(node.name for node in lost))))[-500:]
    now = Moved(count, step if new else before.step, told)
    with contextlib.suppress(OSError):  # a full disk keeps no job on a broken node
        files.write_json(job / "state" / "moved.json", dataclasses.asdict(now))
    return now


# --- the nodes of a cluster, and what others than `trn` run on them ----------------------------------------------------------------------

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
            state, began = ("PENDING", None) if waits else ("RUNNING", slurm.moment(row.start))
            texts = map(one_line, (row.label, row.queue, row.user))
            name, queue, user = texts
            found.append(
                Foreign(name, "sbatch", state, queue, slurm.moment(row.submitted), user, began, parse_int(row.count))
            )
    return found


def _node(line: str, jobs: dict[str, str]) -> Node:
    name = slurm.field("NodeName", line)
    states = slurm.field("State", line).rstrip("*$%@^~#!-").split("+")
    reason = re.search(rf" Reason=(.*?)(?: \[[^\]]*\])?{_REST}", line.rstrip())
    comment = re.search(rf" Comment=({MARK} .*?){_REST}", line.rstrip())
    told = reason or comment  # what root has found, as root writes it
    return Node(
        name=name,
        queue=slurm.field("Partitions", line).partition(",")[0],
        instance_type="",
        state="+".join(states).lower(),
        job=jobs.get(name, ""),
        reason=words(told[1]) if told else "",
        address=slurm.field("NodeAddr", line),
        booted=slurm.moment(slurm.field("BootTime", line)),
        on=not _OFF & set(states),
        instance=slurm.field("InstanceId", line),
    )
