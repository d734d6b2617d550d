"""What a kind of jobs makes of one of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainium_cdk.runner.spec import Program, Step, Sweep, Words


@dataclass(frozen=True)
class KindSpec:
    """What a kind makes of a job, as data for the runner (`runner.spec`). Nothing of it is a shell's line.

    Attributes:
        train: the program of the training.
        precompile: the program whose graphs `neuron_parallel_compile` compiles; None: that of the training.
        files: what is sent with the job, by name; programs are executable.
        prepare: what is fetched first.
        require: paths on the cluster without which the job is refused before a node is requested.
        sweep: values of its members, where it is an array of them.
        batch: whether the training starts once, in Slurm's batch script (`runner.spec.Stage`).
    """

    train: Program
    precompile: Program | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    prepare: tuple[Step, ...] = ()
    require: Words = ()
    sweep: Sweep | None = None
    batch: bool = False
