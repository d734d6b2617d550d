"""What a fault of the trace costs in a cluster, and goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainium_cdk.runner.spec import HealthRules
from trainium_cdk.runner.work import health

HERE = Path(__file__).parent
DATA: dict[str, Any] = yaml.safe_load((HERE / "data.yaml").read_text())
EACH, SECONDS = 8, 0.25
"""Steps of the local training between two checkpoints, and what one takes."""
AIM = 0.95
FEW = ("hang", "dead", "spot", "nan", "disk")
"""Those that are tried on Kubernetes, with fewer nodes. A broken device is for EKS's node repair there."""


@dataclass(frozen=True)
class Fault:
    """One of the trace. `step`: of the local training."""

    kind: str
    node: int
    at: float
    step: int


@dataclass(frozen=True)
class Seen:
    """What was measured of a fault.

    Attributes:
        held: of a lost node, seconds until the scheduler begins the job again. They pass while a new node starts.
        begin: seconds from then until a step; else from when the fault is seen, or the job is sent again.
        redone: steps that were done twice.
    """

    fault: Fault
    begin: float
    redone: int
    held: float = 0.0


@dataclass(frozen=True)
class Cost:
    """Seconds of all nodes that a fault costs: until it is known, until its machine is replaced, until a step, and for the steps that are done twice."""

    known: float
    machine: float
    begin: float
    redone: float

    @property
    def total(self) -> float:
        return self.known + self.machine + self.begin + self.redone


def faults(trace: Sequence[Mapping[str, Any]] = (), nodes: int = 0) -> list[Fault]:
    """Those of a trace, two checkpoints of the local training from each other, and as far from the last one as in the trace."""
    between, made = DATA["training"]["checkpoint"], []
    for number, one in enumerate(trace or DATA["trace"]["faults"]):
        part = one["at"] % between / between
        step = EACH * 2 * (number + 1) + 1 + int(part * (EACH - 1))
        made.append(Fault(one["kind"], one["node"] % (nodes or DATA["trace"]["nodes"]), one["at"], step))
    return made


def moves(kind: str, *, watched: bool) -> bool:
    """Whether a training continues automatically with another machine after this kind of fault."""
    return kind in ("dead", "spot") or (kind == "device" and watched)


def cost(seen: Seen, engine: str, *, watched: bool, data: Mapping[str, Any] = DATA) -> Cost:
    """What a fault costs in a cluster: rules of the runner and published times as they are, and what was measured."""
    rules, of, kind = HealthRules(), data["training"], seen.fault.kind
    start, clocks = data["start"]["seconds"], data["seen"][engine]
    looks = 3 * rules.every  # of the node, of what judges, and of the node that carries the order out
    begin = seen.begin + of["load"]
    redone = seen.fault.at % of["checkpoint"]
    if moves(kind, watched=watched):
        machine = max(clocks["replaced"]["seconds"] + start, seen.held)
        return Cost(clocks[kind]["seconds"], machine, begin, redone)
    if kind in ("disk", "device"):  # its job has ended: its nodes are stopped, and start for the next one
        return Cost(0.0, data["idle"] + start, begin, redone)
    if not watched:
        return Cost(data["person"], 0.0, begin, redone)
    if kind == "hang":
        return Cost(rules.least + looks, 0.0, begin, redone)
    return Cost(health.NANS * of["step"] + looks, data["idle"] + start, begin, redone)


def goodput(costs: Sequence[Cost], seconds: float) -> float:
    """The part of the paid time in which a step is done for the first time."""
    return seconds / (seconds + sum(one.total for one in costs))


def hours(costs: Sequence[Cost], aim: float) -> float:
    """Between two faults, with which goodput is this high."""
    return sum(one.total for one in costs) / len(costs) * aim / (1 - aim) / 3600
