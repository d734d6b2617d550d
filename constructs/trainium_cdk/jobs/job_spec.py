"""From a job that fits its cluster to the data that the runner carries out, on every engine. Pure: the same input gives the same JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainium_cdk.jobs import fetching, versions
from trainium_cdk.jobs.environment import launch_environment
from trainium_cdk.jobs.models import KindSpec, Plan
from trainium_cdk.jobs.values import seconds
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.spec import Checkpoints, Environment, Job, Program, Slurm, Stage, Word

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog

COMPILER = "neuron_parallel_compile"
"""Runs a program until its graphs are known, and compiles them."""


def job_spec(name: str, plan: Plan, catalog: Catalog | None = None, *, folder_of: Callable[[str], str] = str) -> Job:
    """All that the runner needs to carry a job out.

    Args:
        name: the job's id.
        folder_of: the name of a job's folder, from the id that a user gives.
    """
    job, kind = plan.job, plan.job.spec(plan)
    environment = launch_environment(plan, catalog)
    return Job(
        id=name,
        kind=job.kind,
        stages=_stages(plan, kind, {key: value for key, value in environment.items() if key not in job.env}),
        environment=_environment(plan, catalog),
        prepare=kind.prepare,
        require=kind.require,
        shown=_shown(plan),
        settings=job.model_dump(mode="json", exclude={"content", "env"}, exclude_defaults=True),
        # what the launch environment has made of them, as it adds to NEURON_CC_FLAGS
        variables={key: environment[key] for key in job.env},
        files=dict(kind.files),
        checkpoints=_checkpoints(plan, folder_of),
        array=job.array or "",
        slurm=_slurm(plan, plan.cluster, folder_of) if isinstance(plan.cluster, SlurmCluster) else None,
    )


def _stages(plan: Plan, kind: KindSpec, variables: Mapping[str, str]) -> tuple[Stage, ...]:
    job = plan.job

    def with_variables(program: Program) -> Program:
        return replace(program, variables={**variables, **program.variables})

    made = {
        "prepare": Stage("prepare"),
        "precompile": Stage("precompile", job.nodes, with_variables(_compiling(kind)), job.processes_per_node),
        "train": Stage(
            "train",
            job.nodes,
            with_variables(kind.train),
            job.processes_per_node,
            seconds=seconds(job.time_limit) if job.time_limit else None,
            again=job.RESTARTS,
        ),
    }
    return tuple(made[stage] for stage in plan.stages)


def _compiling(kind: KindSpec) -> Program:
    program = kind.precompile or replace(kind.train, resume=())
    return replace(program, words=(COMPILER, *program.words))


def _environment(plan: Plan, catalog: Catalog | None) -> Environment:
    job, cluster = plan.job, plan.cluster
    checks = ""
    if job.CHECKS_VERSIONS and plan.on_trainium:
        checks = "refuse" if plan.needs_neuron else "report"
    return Environment(
        venv=venv_of(cluster) if isinstance(cluster, SlurmCluster) else "",
        venv_required=isinstance(cluster, SlurmCluster) and cluster.framework != "none",
        packages=job.own_environment,
        cores=plan.fleet.cores,
        framework=plan.framework,
        cache=job.cache_set,
        rules=versions.rules(cluster, catalog),
        checks=checks,
    )


def venv_of(cluster: SlurmCluster) -> Word:
    """The cluster's virtual environment."""
    if not cluster.venv.startswith(("/", "~")):
        return f"~/{cluster.venv}"
    on_shared = any(f"{cluster.venv}/".startswith(f"{mount}/") for mount in cluster.mount_dirs)
    return fetching.shared(cluster.venv) if on_shared else cluster.venv


def _shown(plan: Plan) -> dict[str, Any]:
    job = plan.job
    shown = {
        "kind": job.kind,
        "queue": plan.fleet.queue,
        "prepare_queue": plan.prepares_on.queue if "prepare" in plan.stages and not plan.cluster.containers else None,
        "instance_type": plan.fleet.instance_type,
        "nodes": job.nodes,
        "workers": plan.workers,
        "ranks_per_node": plan.ranks_per_node,
        "global_batch_size": plan.batch.global_size if plan.batch else None,
        "user": job.user or None,
        "checkpoints": job.CHECKPOINTS.folder if job.CHECKPOINTS else None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def _checkpoints(plan: Plan, folder_of: Callable[[str], str]) -> Checkpoints | None:
    made = plan.job.CHECKPOINTS
    if made is None:
        return None
    layout = {key: str(value) for key, value in plan.job.layout(plan).items()}
    same = {"kind": plan.job.kind, **layout} if layout else {}
    return replace(made, same=same, source=_job(plan.job.resume_from or "", folder_of))


def _job(id: str, folder_of: Callable[[str], str]) -> str:
    """A job's id, or ARRAY/INDEX, as its folder is named; a path as it is."""
    if not id or id.startswith("/"):
        return id
    array, slash, index = id.partition("/")
    return f"{folder_of(array)}{slash}{index}"


def _slurm(plan: Plan, cluster: SlurmCluster, folder_of: Callable[[str], str]) -> Slurm:
    job = plan.job
    constraint = (f"--constraint={plan.constraint}",) if plan.constraint else ()
    return Slurm(
        queue=plan.fleet.queue,
        prepare_queue=plan.prepares_on.queue,
        cluster=cluster.identity,
        options=(*constraint, *job.sbatch),
        after=_job(job.after or "", folder_of),
        account=job.account or "",
        qos=job.qos or "",
        restarts=job.restarts,
    )
