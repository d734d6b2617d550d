"""The data of a job that fits its cluster: the runner carries it out, on every engine. Pure: the same input gives the same JSON."""

from __future__ import annotations

import datetime as dt
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.models import Job as AnyJob
from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.plan import hour_usd
from trainium_cdk.client.jobs.plan import plan as fit
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.client.jobs.words import seconds, shared
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError, UnknownCatalogEntry
from trainium_cdk.runner import slurm
from trainium_cdk.runner.layout import PLACE
from trainium_cdk.runner.spec import (
    Budget,
    Checkpoints,
    HealthRules,
    JobSpec,
    NodeEnvironment,
    PrepareStep,
    Rule,
    Slurm,
    StageSpec,
    Word,
    to_json,
)

if TYPE_CHECKING:
    from trainium_cdk.description.catalog import Catalog
    from trainium_cdk.description.catalog.models import Range
    from trainium_cdk.description.outputs import Cluster

LARGE = 64
"""From this number of nodes, torch-xla's rendezvous store is not used. The vendor documents no number; `env` overrides."""
_FORK_SAFE_BELOW = (5, 15)
_NEWEST = (99, 0)
_HIDDEN = "(not shown)"
COMPILER = "neuron_parallel_compile"
"""Runs a program until its graphs are known, and compiles them."""


def job_id(job: AnyJob, token: str) -> str:
    """The id of a job submitted with `token`.

    Raises:
        JobError: the token has characters that ids may not have.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", token):
        raise JobError(
            f"token is {token!r}. Use small letters, digits and hyphens, at most 40, with a letter or digit as the "
            "first and the last, for example 20261120-4f3a9c"
        )
    return f"{job.label}-{token}"


def new_token() -> str:
    """A unique token: the date and six random hexadecimal digits."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%d}-{secrets.token_hex(3)}"


def render(job: AnyJob, cluster: SlurmCluster, token: str) -> Plan:
    """Render a job for a cluster of Slurm, whose head node gets the data as it is.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = job_id(job, token), fit(job, cluster)
    return replace(fitted, spec=job_spec(name, fitted))


def text(rendered: Plan) -> str:
    """The job, and what sbatch gets. Variables have only their names, as they may be secrets; files have sizes."""
    made = rendered.spec
    job = to_json(made)
    if made.variables:
        job["variables"] = dict.fromkeys(made.variables, _HIDDEN)
    if made.files:
        job["files"] = {name: f"{len(content):,} bytes" for name, content in made.files.items()}
    shown = {"job": job, "slurm": [_batch(rendered, stages) for stages in slurm.batches(made.stages)]}
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def _batch(rendered: Plan, stages: Sequence[StageSpec]) -> dict[str, Any]:
    folder = Path(rendered.directory)
    runner = f"{rendered.cluster.shared_dir}/{PLACE}/{pyz().name}.pyz"
    return {
        "sbatch": slurm.sbatch_options(rendered.spec, stages, folder),
        "script": slurm.batch_script(runner, folder, stages),
    }


def job_spec(name: str, plan: Plan, *, folder_of: Callable[[str], str] = str) -> JobSpec:
    """All that the runner needs to carry a job out.

    Args:
        name: the job's id.
        folder_of: the name of a job's folder, from the id that a user gives.
    """
    job, environment = plan.job, launch_environment(plan)
    variables = {key: value for key, value in environment.items() if key not in job.env}
    return JobSpec(
        id=name,
        kind=job.kind,
        stages=tuple(_stage(plan, stage, variables) for stage in plan.stages),
        environment=_environment(plan),
        prepare=(
            *job.prepare(plan),
            *([PrepareStep("compiled", {"uri": _compiled(plan)})] if plan.shared_cache else []),
        ),
        require=job.require(plan),
        shown=_shown(plan),
        settings=job.model_dump(mode="json", exclude={"content", "env"}, exclude_defaults=True),
        # what the launch environment has made of them, as it adds to NEURON_CC_FLAGS
        variables={key: environment[key] for key in job.env},
        files=dict(job.files(plan)),
        checkpoints=_checkpoints(name, plan, folder_of),
        array=job.array or "",
        sweep=getattr(job, "sweep", None),
        slurm=_slurm(plan, plan.cluster, folder_of) if isinstance(plan.cluster, SlurmCluster) else None,
        health=_health(plan.cluster.health),
        budget=_budget(plan) if job.max_usd else None,
    )


def _health(actions: str) -> HealthRules:
    """Read the rules of the environment. What this release does not know is only reported."""
    chosen = dict(one.partition("=")[::2] for one in actions.split())
    return HealthRules(hang=chosen.get("hang", "tell"), nan=chosen.get("nan", "tell"))


def _budget(plan: Plan) -> Budget:
    """Return the most that a job may cost, as time of its nodes.

    Raises:
        JobError: the price is not known.
    """
    from trainium_cdk.description.catalog import Catalog

    job, fleet = plan.job, plan.fleet
    hour = hour_usd(plan, Catalog.load())
    if hour is None:
        why = "a capacity block is paid for when it is bought"
        if fleet.capacity_type != "capacity-block":
            why = f"the catalogue has no price of {fleet.instance_type} in {plan.cluster.region}"
        raise JobError(f"max_usd is {job.max_usd:g}, but {why}. Remove it, and give --time-limit")
    assert job.max_usd is not None  # noqa: S101  checked by the caller
    return Budget(job.max_usd, round(job.max_usd / (hour / job.nodes) * 3600))


def _stage(plan: Plan, name: str, variables: Mapping[str, str]) -> StageSpec:
    job = plan.job
    if name == "prepare":
        return StageSpec(name)
    compiles = name == "precompile"
    program = job.precompile_program(plan) if compiles else job.program(plan)
    program = replace(program, variables={**variables, **program.variables})
    if compiles:
        program = replace(program, words=(COMPILER, *program.words))
        return StageSpec(name, job.nodes, program, job.processes_per_node)
    limit = seconds(job.time_limit) if job.time_limit else None
    return StageSpec(name, job.nodes, program, job.processes_per_node, limit, job.RESTARTS, job.starts_once, job.spmd)


def _environment(plan: Plan) -> NodeEnvironment:
    job, cluster = plan.job, plan.cluster
    checks = ""
    if job.CHECKS_VERSIONS and plan.on_trainium:
        checks = "refuse" if plan.needs_neuron else "report"
    return NodeEnvironment(
        venv=venv_of(cluster) if isinstance(cluster, SlurmCluster) else "",
        venv_required=isinstance(cluster, SlurmCluster) and cluster.framework != "none",
        packages=job.own_environment,
        cores=plan.fleet.cores,
        framework=plan.framework,
        cache=f"{job.cache_set}{_apart(plan)}",
        compiled=_compiled(plan),
        rules=_rules(cluster),
        checks=checks,
        region=cluster.region if job.has_secrets else "",
    )


def venv_of(cluster: SlurmCluster) -> Word:
    """The cluster's virtual environment."""
    if not cluster.venv.startswith(("/", "~")):
        return f"~/{cluster.venv}"
    on_shared = any(f"{cluster.venv}/".startswith(f"{mount}/") for mount in cluster.mount_dirs)
    return shared(cluster.venv) if on_shared else cluster.venv


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


def _compiled(plan: Plan) -> str:
    """The address of compiled graphs that are of the job's framework, instance type, and part of a node; empty if none."""
    to = plan.shared_cache.rstrip("/")
    return f"{to}/{plan.framework}/{plan.fleet.instance_type}{_apart(plan)}" if to else ""


def _apart(plan: Plan) -> str:
    """What tells compiled graphs of a part of a node, or of a claim's LNC, from others, which may not run there; empty for none."""
    own = {"devices": plan.job.devices, "lnc": plan.job.lnc if plan.fleet.claims else None}
    return "".join(f"-{name}-{number}" for name, number in own.items() if number)


def _transfer(region: str) -> dict[str, float]:
    """USD for a gigabyte from a bucket of each other region, through this region's NAT gateway: S3's endpoint in a VPC serves its own region alone."""
    from trainium_cdk.description.catalog import Catalog

    prices = Catalog.load().service_prices
    gateway = prices.get(region, {}).get("nat-gateway-gb", 0.0)
    return {one: of["transfer-gb"] + gateway for one, of in prices.items() if one != region and "transfer-gb" in of}


def _checkpoints(name: str, plan: Plan, folder_of: Callable[[str], str]) -> Checkpoints | None:
    made = plan.job.CHECKPOINTS
    if made is None:
        return None
    layout = {key: str(value) for key, value in plan.job.layout(plan).items()}
    same = {"kind": plan.job.kind, **layout} if layout else {}
    source = _job(plan.job.resume_from or "", folder_of)
    keep = f"{plan.keep.rstrip('/')}/{name}" if plan.keep else ""
    transfer = _transfer(plan.cluster.region) if source.startswith("s3://") else {}
    return replace(made, same=same, source=source, transfer=transfer, keep=keep, keeps=plan.job.keep_newest)


def _job(id: str, folder_of: Callable[[str], str]) -> str:
    """A job's id, or ARRAY/INDEX, as its folder is named; a path or an address as it is."""
    if not id or id.startswith(("/", "s3://")):
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
        past_block_end=job.past_block_end,
    )


def _rules(cluster: Cluster) -> tuple[Rule, ...]:
    """Drivers and runtimes that do not work together, as a node compares its own with them."""
    from trainium_cdk.description.catalog import Catalog

    return tuple(
        Rule(_range(rule.driver), _range(rule.runtime), f"{rule}. {cluster.version_fix}")
        for rule in Catalog.load().incompatible
    )


def _range(versions: Range) -> tuple[str, str]:
    return versions.first or "", versions.before or ""


def launch_environment(plan: Plan, catalog: Catalog | None = None) -> dict[str, str]:
    """Variables of a training process, by Neuron release, kernel, fleet and kind, as names and values, including the job's own `env`, which overrides the others."""
    job, fleet = plan.job, plan.fleet
    env = {
        "PYTHONUNBUFFERED": "1",  # so that logs can be followed
        "MASTER_PORT": "2022",
    }
    if not plan.on_trainium:
        return {**env, **job.env}
    env["NEURON_RT_EXEC_TIMEOUT"] = "600"  # slow compilation on one worker must not look like a hang on the others
    if fleet.efa and job.nodes > 1:
        env |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
        if _version(plan.cluster.kernel) < _FORK_SAFE_BELOW:
            env["FI_EFA_FORK_SAFE"] = "1"
        if plan.cluster.socket_interface:
            env["CCOM_SOCKET_IFNAME"] = plan.cluster.socket_interface
    if job.nodes >= LARGE and plan.framework == "torch-xla":
        env |= {"XLA_USE_DUMMY_STORE": "1", "TORCH_DIST_INIT_BARRIER": "0"}
    lnc = {"NEURON_LOGICAL_NC_CONFIG": str(fleet.lnc)} if fleet.lnc else {}
    env |= {**job.launch_environment(plan, torch_version(plan, catalog)), **lnc, **job.env}
    if fleet.lnc and plan.framework != "torch-native":  # TorchNeuron passes that variable to the compiler itself
        flags = env.get("NEURON_CC_FLAGS", "")
        if not re.search(r"(^|\s)--?(logical-nc-config|lnc)\b", flags):  # compiler and runtime need the same value
            env["NEURON_CC_FLAGS"] = f"{flags} --logical-nc-config={env['NEURON_LOGICAL_NC_CONFIG']}".strip()
    return env


def torch_version(plan: Plan, catalog: Catalog | None = None) -> tuple[int, ...]:
    """(major, minor) of the PyTorch of the cluster's Neuron release; the newest if unknown."""
    from trainium_cdk.description.catalog import Catalog

    try:
        known = (catalog or Catalog.load()).release(plan.cluster.neuron_release).frameworks
    except UnknownCatalogEntry:
        return _NEWEST
    version = next((framework.version for name, framework in known.items() if name == plan.framework), None)
    return _version(version) if version else _NEWEST


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
