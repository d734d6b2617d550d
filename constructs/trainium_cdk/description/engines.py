"""The engines that run jobs, by name. All in which they differ is in the room that uses it, in a table by the engine's name.

>>> from trainium_cdk.description import engines
>>> list(engines.ENGINES), engines.get("eks").title
(['slurm', 'eks', 'pcs'], 'Kubernetes')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainium_cdk.errors import TrnError


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The names of an engine: a scheduler, and the AWS service that runs its nodes.

    Attributes:
        name: in outputs (`TrnEngine`), options and messages of rules.
        title: in sentences.
        section: its key of the environment.
        stack: id of its stack in the app: `cdk deploy <stack>`.
        queue_noun: noun for the part with a zone and a capacity type.
        nodes_noun: noun for the part with an instance type.
    """

    name: str
    title: str
    section: str
    stack: str
    queue_noun: str
    nodes_noun: str


SLURM = Engine(
    name="slurm",
    title="Slurm",
    section="pcluster",
    stack="TrnPclusterStack",
    queue_noun="queue",
    nodes_noun="compute resource",
)
"""On AWS ParallelCluster."""
EKS = Engine(
    name="eks",
    title="Kubernetes",
    section="eks",
    stack="TrnEksStack",
    queue_noun="node group",
    nodes_noun="node group",
)
"""With Kueue, on Amazon EKS."""
PCS = Engine(
    name="pcs",
    title="Slurm on AWS PCS",
    section="pcs",
    stack="TrnPcsStack",
    queue_noun="queue",
    nodes_noun="compute resource",
)
"""On AWS Parallel Computing Service (PCS)."""
ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (SLURM, EKS, PCS)}
DEFAULT = SLURM.stack
"""The stack that commands use where none is named."""


def get(name: str) -> Engine:
    """An engine by its name.

    Raises:
        TrnError: there is none of that name.
    """
    try:
        return ENGINES[name]
    except KeyError:
        raise TrnError(f"unknown engine {name!r}. Choose one of {', '.join(ENGINES)}") from None


def of_stack(id: str) -> Engine | None:
    """The engine whose stack has this id in the app."""
    return next((e for e in ENGINES.values() if e.stack == id), None)
