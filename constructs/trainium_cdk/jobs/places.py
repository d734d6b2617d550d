"""Where the stages before the training run: which queue and instance type, and whether nodes must start for them first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import Plan
    from trainium_cdk.settings import Environment

SYSTEM = "system nodes"
"""Where `prepare` runs on Kubernetes: in a pod on a node that is no queue's."""


class Known(NamedTuple):
    """What an environment says, and a deployed stack does not.

    Attributes:
        always: number of nodes that always run, by queue.
        system: instance type of the system nodes; empty where there are none.
    """

    always: Mapping[str, int]
    system: str = ""


@dataclass(frozen=True)
class Place:
    """Where a stage runs.

    Attributes:
        instance_type: empty if it is not known, as that of system nodes of a stack without its environment file.
        from_zero: whether fewer nodes always run, so that some may have to start; None if that is not known.
    """

    stage: str
    nodes: int
    queue: str
    instance_type: str
    from_zero: bool | None

    def __str__(self) -> str:
        start = {True: "which may have to start from zero", False: "which run always", None: "which may have to start"}[
            self.from_zero
        ]
        if self.queue == SYSTEM:
            return f"{self.stage}: a pod on the {SYSTEM} ({self.instance_type or 'type not known'}), {start}"
        return f"{self.stage}: {self.nodes} x {self.instance_type} of queue {self.queue}, {start}"


def known(environment: Environment, engine: str) -> Known:
    """What an environment says of the nodes of one engine's cluster."""
    from trainium_cdk.settings.inventory import inventory

    found = inventory(environment, engine)
    always = Counter[str]()
    for nodes in found.nodes:
        always[nodes.queue.name] += nodes.resource.min_nodes
    for queue in getattr(environment.sections[engine], "cpu_queues", ()):
        always[queue.name] += queue.min_nodes
    system = next((p.instance_type for p in found.parts if p.key[1:] == ("system", "instance_type")), "")
    return Known(always, system)


def places(plan: Plan, said: Known | None) -> tuple[Place, ...]:
    """Where `prepare` and `precompile` of a job run, in their order; empty if it has neither.

    Args:
        said: None: only the deployed stack is known.
    """

    def place(stage: str) -> Place:
        if stage == "prepare" and plan.cluster.containers:
            return Place(stage, 1, SYSTEM, said.system if said else "", from_zero=False)
        fleet, nodes = (plan.prepares_on, 1) if stage == "prepare" else (plan.fleet, plan.job.nodes)
        zero = said.always.get(fleet.queue, 0) < nodes if said else None
        return Place(stage, nodes, fleet.queue, fleet.instance_type, zero)

    return tuple(place(stage) for stage in plan.stages if stage != "train")
