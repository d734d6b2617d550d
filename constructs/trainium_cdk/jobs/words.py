"""Words of the programs that kinds start: places, launchers, and values as a command line takes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from trainium_cdk.runner.spec import Only, Place, Word, Words

if TYPE_CHECKING:
    from trainium_cdk.catalog.sources import SourceTree
    from trainium_cdk.jobs.models import Job, Plan

JOB, FILES, TRN, CACHE, CHECKPOINT = map(Place, ("job", "files", "trn", "cache", "checkpoint"))
"""See `runner.spec.Place`."""

_LAUNCHERS: dict[str, Words] = {
    "torchrun": (
        "torch.distributed.run",
        *("--nproc_per_node", (Place("processes"),), "--nnodes", (Place("nodes"),), "--node_rank", (Place("node"),)),
        *("--master_addr", (Place("master"),), "--master_port", (Place("port"),)),
    ),
    "accelerate": (
        "accelerate.commands.launch",
        *("--multi_gpu", "--num_processes", (Place("workers"),)),
        *("--num_machines", (Place("nodes"),), "--machine_rank", (Place("node"),)),
        *("--main_process_ip", (Place("master"),), "--main_process_port", (Place("port"),)),
    ),
}


def launch(*program: Word, by: Literal["torchrun", "accelerate"] = "torchrun") -> Words:
    """The words that start a Python program once for each NeuronCore of the node.

    The launchers are started as modules: the script `torchrun` runs the Python it was installed with, which does not have the packages of the
    job's environment. `--multi_gpu` is Accelerate's name for several processes on any accelerator.
    """
    return ("python3", "-m", *_LAUNCHERS[by], *program)


def shared(path: str) -> Word:
    """A path on a shared file system, as a user gives it."""
    return (Place("root"), path)


def only(place: Word) -> Word:
    """The one folder that an archive, or a model's cache, may have unpacked into; else the place itself."""
    return (Only(place),)


def on_cluster(plan: Plan, *paths: str | None) -> Words:
    """Those of these paths that a submission can check, as they are on a shared file system."""
    mounts = plan.cluster.mount_dirs
    return tuple(shared(path) for path in paths if path and any(f"{path}/".startswith(f"{m}/") for m in mounts))


def ref(tree: SourceTree, job: Job) -> str:
    """The commit of a vendor's repository: the pinned one, or that of the job's variable for it."""
    return job.env.get(tree.ref_variable) or tree.commit


def options(given: Iterable[str]) -> Words:
    """Options of a program that a job adds, from KEY=VALUE or KEY alone."""
    return tuple(word for each in given for word in f"--{each}".split("=", 1))


def number(value: float) -> str:
    """A number as the vendors' programs read it.

    >>> number(0.00015), number(6e-3), number(2e-5)
    ('0.00015', '0.006', '2e-05')
    """
    return f"{value:.10g}"
