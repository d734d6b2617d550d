"""The engines that run jobs, by name. All in which they differ is in the room that uses it, in a table by the engine's name. And the environment file that
`trn use` remembers on this machine: `trn` and the CDK app both read it here.

>>> from trainium_cdk.description import engines
>>> list(engines.ENGINES), engines.get("eks").title
(['slurm', 'eks', 'pcs'], 'Kubernetes')
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class InUse:
    """Selection that `trn use` remembers.

    Attributes:
        file: the environment file, absolute.
        team, user: whose jobs commands submit and list; empty where nothing is remembered.
    """

    file: Path
    team: str = ""
    user: str = ""

    def __str__(self) -> str:
        return "".join((str(self.file), *(f", {name} {value}" for name, value in self._kept())))

    def _kept(self) -> Iterator[tuple[str, str]]:
        yield from ((name, value) for name in ("team", "user") if (value := getattr(self, name)))

    @property
    def text(self) -> str:
        """Stored form: the file, then a line for each of the others."""
        return "\n".join((str(self.file), *(f"{name}={value}" for name, value in self._kept()), ""))


def in_use() -> InUse | None:
    """Read the selection of the last `trn use`; None without one."""
    try:
        file, *rest = place().read_text("utf-8").strip().splitlines()
    except (OSError, ValueError):
        return None
    kept = dict(line.split("=", 1) for line in rest if line.startswith(("team=", "user=")))
    return InUse(Path(file), **kept)


def place() -> Path:
    """The file that holds it, in the user's configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "trainium-cdk" / "environment"
