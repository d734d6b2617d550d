"""Renders a job for a cluster as the one shell script that submits it. Pure: the same input gives the same text, byte
for byte.

A job is a chain of Slurm jobs, each starts when the one before has completed, and is cancelled by Slurm if that is no longer
possible:

    prepare     fetches code, data and packages, on one node of the CPU queue, or else of the cheapest queue. Unlike
                the head node it may fail, be requeued and resume, and Slurm has its state and log; it is
                skipped if everything is already fetched.
    precompile  compiles the graphs into each node's own cache, and then ties `train` to its nodes.
    train       trains; requeued after a node failure, it resumes from its last checkpoint.

All files of a job are in one directory on the shared file system: scripts, state, logs, checkpoints, TensorBoard's files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import checkpoints, quote, shell, templates, versions
from trainium_cdk.jobs.environment import cache_lines, launch_environment
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import Plan, StageName, plan
from trainium_cdk.jobs.slurm.submit_script import Pieces, submit_script
from trainium_cdk.jobs.submission import Submission, job_id
from trainium_cdk.jobs.templates import Template
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner import arrays


@dataclass(frozen=True)
class SlurmSubmission(Submission):
    """The shell script that the job's user runs on the head node; it writes `files` into the job's directory."""

    pieces: Pieces = field(repr=False)

    @property
    def text(self) -> str:
        return self.pieces.text


def render(job: Job, cluster: SlurmCluster, token: str, *, catalog: Catalog | None = None) -> SlurmSubmission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = job_id(job, token), plan(job, cluster)
    parts, venv = checkpoints.complete(job.template(fitted), fitted), venv_of(cluster)
    described = _describe(name, fitted)
    job_files: dict[str, bytes] = {
        "job.json": (json.dumps(described, indent=2, sort_keys=True) + "\n").encode(),
        "summary.json": (
            json.dumps({k: described[k] for k in _SUMMARY if k in described}, sort_keys=True) + "\n"
        ).encode(),
        "stage.sh": shell.read("stage.sh", "checkpoints.sh"),
        "node.sh": _node(name, fitted, venv, parts, catalog).encode(),
    }
    if "prepare" in fitted.stages:
        job_files["fetch.sh"] = shell.fetch()
        job_files["prepare.sh"] = _prepare(fitted, venv, parts, catalog).encode()
    for stage in fitted.stages:
        job_files[f"{stage}.sbatch"] = _batch(name, fitted, parts, stage).encode()
    job_files |= {f"script/{name}": content for name, content in job.files.items()}
    directory = f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}"
    return SlurmSubmission(
        name,
        directory,
        fitted,
        job_files,
        submit_script(name, fitted, cluster.identity, require_venv(venv), parts, job_files),
    )


_SUMMARY = (
    "kind",
    "queue",
    "prepare_queue",
    "instance_type",
    "nodes",
    "global_batch_size",
    "user",
    "checkpoints",
)
"""What `trn list` shows of a job: one line, so that reading it is limited whatever the job wrote."""


def _describe(name: str, fitted: Plan) -> dict[str, Any]:
    job = fitted.job
    described = job.model_dump(mode="json", exclude={"content", "env"}, exclude_defaults=True)
    return {
        "id": name,
        "kind": job.kind,
        "job": described,
        "queue": fitted.fleet.queue,
        "instance_type": fitted.fleet.instance_type,
        "nodes": job.nodes,
        "workers": fitted.workers,
        "global_batch_size": fitted.batch.global_size if fitted.batch else None,
        "stages": list(fitted.stages),
        **({"prepare_queue": fitted.prepares_on.queue} if "prepare" in fitted.stages else {}),
        **({"user": job.user} if job.user else {}),
        **({"checkpoints": job.CHECKPOINTS.folder} if job.CHECKPOINTS else {}),
    }


def _batch(name: str, fitted: Plan, parts: Template, stage: StageName) -> str:
    job = fitted.job
    prepare = stage == "prepare"
    nodes = 1 if prepare else job.nodes
    tasks = 1 if prepare else job.processes_per_node
    options = [
        f"--job-name={name}:{stage}",
        f"--comment=trn:{name}",
        f"--partition={(fitted.prepares_on if prepare else fitted.fleet).queue}",
        f"--nodes={nodes}",
        f"--ntasks-per-node={tasks}",
        "--exclusive",
        "--mem=0",
        "--no-requeue" if job.restarts == 0 and not prepare else "--requeue",
        "--open-mode=append",
    ]
    options += [f"--{name}={value}" for name in ("account", "qos") if (value := getattr(job, name))]
    if fitted.constraint and not prepare:
        options.append(f"--constraint={fitted.constraint}")
    if job.time_limit and stage == "train":
        options.append(f"--time={job.time_limit}")
    body = {
        "prepare": ['tasks 1 --nodes=1 --ntasks=1 bash "$job/prepare.sh" "$job" fetch'],
        "precompile": ["rendezvous", parts.before, "launch", "check_compiled", "keep_nodes"],
        "train": ["compare_nodes" if "precompile" in fitted.stages else "", "rendezvous", parts.before, "launch"],
    }[stage]
    where = "job=$1"
    if job.array and stage == "train":
        options.append(f"--array={job.array}")
        where = "root=$1 job=$1/$SLURM_ARRAY_TASK_ID"
    lines = ["#!/bin/bash", *(f"#SBATCH {o}" for o in options)]
    limit = f" restarts={job.restarts}" if job.restarts and not prepare else ""
    commands = ["begin", *filter(None, body), "finished=yes"]
    return "\n".join([*lines, f"{where} stage={stage}{limit}", '. "$1/stage.sh"', *commands, ""])


def venv_of(cluster: SlurmCluster) -> str:
    """The virtual environment, as a word of a shell script."""
    venv = cluster.venv
    if venv.startswith("~"):
        user, _, name = venv.partition("/")
        return f"{user}/{quote.word(name)}"  # the shell replaces ~USER only without quotes
    if any(f"{venv}/".startswith(f"{d}/") for d in cluster.mount_dirs):
        return quote.shared(venv)
    return quote.word(venv) if venv.startswith("/") else f'"$HOME"/{quote.word(venv)}'


def require_venv(venv: str) -> str:
    return f"""venv={venv}
if [ ! -f "$venv/bin/activate" ]; then
  die "there is no virtual environment at $venv: the head node's bootstrap has not finished, or failed"
fi
"""


def _prepare(fitted: Plan, venv: str, parts: Template, catalog: Catalog | None) -> str:
    index = (catalog or Catalog.load()).repositories.pip
    return f"""#!/bin/bash
# bash prepare.sh JOB fetch|check: fetches what this job needs and the cluster does not have yet.
{quote.exports(fitted.job.env)}job=$1 mode=$2
trn=${{job%/jobs/*}}
base=$(readlink -f {venv}) python=$base/bin/python3 index={quote.word(index)}
if [ "$mode" = fetch ]; then : > "$job/state/prepare.begun"; fi
. "$job/fetch.sh"
{parts.prepare.strip()}
if [ "$mode" = fetch ]; then : > "$job/state/prepare.task.0"; fi
"""


_NODE = r"""#!/bin/bash
# One node of {name}: bash node.sh JOB STAGE, started on each node by srun.
set -euo pipefail
job=$1 stage=$2
trn=${{job%/jobs/*}}
host=${{SLURMD_NODENAME:-$(hostname -s)}}
export NODE_RANK=$SLURM_NODEID
export NPROC_PER_NODE={cores}
{environment}
# a compile cache for each node: locks do not hold on NFS, so nodes must not share one
cache=$trn/neuron_cache/{cache}/$host
{cache_lines}

say() {{ printf 'trn: %s\n' "$*"; }}
die() {{ say "$*" >&2; exit 1; }}

{versions}
{helpers}run() {{
{activate}
{check}mkdir -p "$cache"
# each worker holds many connections at once ("Failed accept4: Too many open files")
files=$(ulimit -Sn)
if [ "$files" != unlimited ] && [ "$files" -lt 65535 ] && ! ulimit -n 65535 2> /dev/null; then
  say "at most $files files may be open here; large jobs need 65535"
fi
# keeps the port of Neuron's collectives free of outgoing connections
# by the node's bootstrap; an image of your own may lack that
grep -qw 48620 /proc/sys/net/ipv4/ip_local_reserved_ports ||
  sudo -n sysctl -q -w net.ipv4.ip_local_reserved_ports=48620 > /dev/null 2>&1 ||
  say "port 48620 could not be reserved"
{body}
}}

# The first failure is recorded: it stops the other nodes, whose exit codes mean nothing.
ended() {{
  local code=$?
  if [ "$code" -ne 0 ] && [ "$code" -ne 143 ]; then
    (set -C && printf '%s %s\n' "$code" "$NODE_RANK" > "$job/state/$stage.failed") 2> /dev/null || true
  fi
}}
trap ended EXIT
: > "$job/state/$stage.begun"

# A program that is told to end has Slurm's KillWait to save its state: the task ends after it.
trap 'exit 143' TERM
run 2>&1 | (
  trap '' TERM
  exec tee -a "$job/logs/$stage.$NODE_RANK.log"
)
# A success is recorded here: at a signal, the trap's exit code is that of the command before, 0.
: > "$job/state/$stage.task.$SLURM_PROCID"
"""


def _node(name: str, fitted: Plan, venv: str, parts: Template, catalog: Catalog | None) -> str:
    env = launch_environment(fitted, catalog)
    activate = f"venv={venv}\n"
    if fitted.job.own_environment:
        activate = templates.ENVIRONMENT.rstrip("\n")
    elif fitted.cluster.framework == "none":
        activate += 'if [ -f "$venv/bin/activate" ]; then . "$venv/bin/activate"; fi'
    else:
        activate += (
            'if [ ! -f "$venv/bin/activate" ]; then die "there is no virtual environment at $venv"; fi\n'
            '. "$venv/bin/activate"'
        )
    ranks = ""
    if fitted.job.array:
        ranks = f"export TRN_ARRAY_INDEX=$SLURM_ARRAY_TASK_ID TRN_ARRAY_COUNT={len(arrays.indices(fitted.job.array))}\n"
    if fitted.job.processes_per_node > 1:
        ranks += "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS\n"
    return _NODE.format(
        name=name,
        cores=fitted.fleet.cores,
        environment=quote.exports(env).rstrip("\n"),
        cache=fitted.job.cache_set,
        cache_lines=cache_lines(fitted.framework),
        versions=versions.node_check(fitted.cluster, fitted.needs_neuron, catalog),
        check="check_versions\n" if fitted.job.CHECKS_VERSIONS and fitted.on_trainium else "",
        helpers=parts.helpers,
        activate=activate,
        body=ranks + parts.node,
    )
