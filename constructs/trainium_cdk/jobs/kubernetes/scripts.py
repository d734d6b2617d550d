"""The files of a job on Kubernetes: the shell that its containers run. Pure.

A job has two tasks:

    prepare  a batch Job: one pod on a system node fetches code, data and packages. Only when it has completed does the job wait in its
             queue, so that no Trainium node waits for it.
    train    a JobSet: a pod on each Trainium node, all or none. An init container, `precompile`, compiles the graphs into the
             cache set, a directory for each node; then `train` trains.
"""

from __future__ import annotations

import json
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import checkpoints, quote, shell, templates, versions
from trainium_cdk.jobs.environment import cache_lines, launch_environment
from trainium_cdk.jobs.kubernetes.names import host
from trainium_cdk.jobs.plan import Plan
from trainium_cdk.jobs.templates import Template
from trainium_cdk.jobs.values import seconds
from trainium_cdk.runner import arrays

FILES = "/trn/job"
"""Where the files are mounted."""
FINAL = (64, 65, 66)
"""Exit codes (`shell/pod.sh`) that end the job: something is missing; graphs failed to compile; the user's script failed."""
TIMED_OUT = 124
"""Exit code of `timeout`: the training reached its time limit."""

_NODE = r"""#!/bin/bash
# {name}, one pod: bash node.sh prepare|precompile|train
set -euo pipefail
stage=$1
files={files}
trn={shared}/trn
job=$trn/jobs/{name}{member}
. "$files/pod.sh"
{limit}export NNODES={nodes} NPROC_PER_NODE={cores} NODE_RANK=${{JOB_COMPLETION_INDEX:-0}}
export MASTER_ADDR={master}
host={host}node-$NODE_RANK
{once}{tools}# `prepare` gets the job's own variables only: others, such as HF_HUB_OFFLINE, hold once it has fetched everything
if [ "$stage" != prepare ]; then
{environment}
fi
# a compile cache for each node: locks do not hold on NFS, so nodes must not share one
cache=$trn/neuron_cache/{cache}/$host
{cache_lines}

{versions}
{helpers}run() {{
{body}
}}

launch() {{
{check}mkdir -p "$cache"
open_files
{activate}{before}{start}
}}

{ranks}begin
"$stage"
"""

_PREPARE = """#!/bin/bash
# bash prepare.sh fetch|check: fetches what this job needs and the cluster does not have yet.
{environment}mode=$1
files={files}
trn={shared}/trn
job=$trn/jobs/{name}
base={base} python=python3 index={index}
. "$files/fetch.sh"
{require}
{prepare}
"""


def job_files(
    name: str, fitted: Plan, parts: Template, catalog: Catalog | None = None, *, team: str = ""
) -> dict[str, bytes]:
    """The files by their path below `FILES`."""
    job = fitted.job
    made = {
        "job.json": (json.dumps(describe(name, fitted), indent=2, sort_keys=True) + "\n").encode(),
        "pod.sh": shell.read("pod.sh", "checkpoints.sh"),
        "node.sh": _node(name, fitted, parts, catalog, team).encode(),
    }
    if "prepare" in fitted.stages:
        made["fetch.sh"] = shell.fetch()
        made["prepare.sh"] = _prepare(name, fitted, parts, catalog).encode()
    return made | {f"script/{filename}": content for filename, content in job.files.items()}


def describe(name: str, fitted: Plan, index: int | None = None) -> dict[str, Any]:
    """What `trn status` shows of a job, or of a member of an array, in addition to its state."""
    return {
        "id": name,
        **({"user": fitted.job.user} if fitted.job.user else {}),
        **checkpoints.recorded(fitted),
        "kind": fitted.job.kind,
        "job": fitted.job.model_dump(
            mode="json", exclude={"content", "env", "args"}, exclude_defaults=True
        ),  # args may be too long
        "queue": fitted.fleet.queue,
        "instance_type": fitted.fleet.instance_type,
        "nodes": fitted.job.nodes,
        "ranks_per_node": fitted.ranks_per_node,
        "global_batch_size": fitted.batch.global_size if fitted.batch else None,
        "stages": list(fitted.stages),
        "directory": directory(name, fitted) + ("" if index is None else f"/{index}"),
    }


def directory(name: str, fitted: Plan) -> str:
    """The job's directory on the shared file system: logs, checkpoints, TensorBoard's files."""
    return f"{fitted.cluster.shared_dir}/trn/jobs/{name}"


def image_of(fitted: Plan) -> str:
    return fitted.job.image or fitted.cluster.image


def _node(name: str, fitted: Plan, parts: Template, catalog: Catalog | None, team: str) -> str:
    job = fitted.job
    env = launch_environment(fitted, catalog)
    several = job.processes_per_node
    start = f"tasks {several}" if several > 1 else "run"
    ranks = f"NPROC_PER_NODE={several} " if several > 1 else ""
    if job.array:
        ranks = f"export TRN_ARRAY_COUNT={len(arrays.indices(job.array))}\n{ranks}"
    limit = before = ""
    if job.time_limit:
        limit = (
            f'if [ "$stage" = train ] && [ -z "${{TRN_LIMITED:-}}" ]; then\n'
            f'  TRN_LIMITED=1 exec timeout --kill-after=60 {seconds(job.time_limit)} bash "$0" train\nfi\n'
        )
    if parts.before:
        before = f"{parts.before}\n"
    if job.files:
        before += 'mkdir -p "$job/script"\npart="$job/script/.part.$NODE_RANK"\n'
    for filename in job.files:
        script = f'"$job/script"/{quote.word(filename)}'
        before += f'install -m 700 "$files/script"/{quote.word(filename)} "$part"\nmv -f "$part" {script}\n'
    return _NODE.format(
        name=name,
        member="${TRN_ARRAY_INDEX:+/$TRN_ARRAY_INDEX}" if job.array else "",
        # teams, and members, run at once
        host=(f"team-{team}-" if team else "") + ("member-${TRN_ARRAY_INDEX:-}-" if job.array else ""),
        files=FILES,
        shared=_shared(fitted),
        activate=templates.ENVIRONMENT if job.own_environment else "",
        limit=limit,
        # a user's script may not be able to resume
        once="" if job.RESTARTS else "fails_once=1\n",
        # what only copies a checkpoint needs neither
        tools="" if job.PREPARES or getattr(job, "workdir", None) else f"tools={quote.word(job.tools)}\n",
        nodes=job.nodes,
        cores=fitted.fleet.cores,
        master=host(f"{name}-" + "${TRN_ARRAY_INDEX:-}" if job.array else name, 0),
        environment=quote.exports(env).rstrip("\n"),
        cache=job.cache_set,
        cache_lines=cache_lines(fitted.framework),
        versions=versions.node_check(fitted.cluster, fitted.needs_neuron, catalog),
        check="check_versions\n" if job.CHECKS_VERSIONS else "",
        helpers=parts.helpers,
        body=parts.node,
        before=before,
        start=start,
        ranks=ranks,
    )


def _prepare(name: str, fitted: Plan, parts: Template, catalog: Catalog | None) -> str:
    # fetch.sh has its own `die`; a missing path fails the job at once, because a retry would fail too
    require = f'die() {{ printf "trn: %s\\n" "$*" >&2; exit 64; }}\n{parts.require}' if parts.require else ""
    return _PREPARE.format(
        name=name,
        environment=quote.exports(fitted.job.env),
        files=FILES,
        shared=_shared(fitted),
        base=quote.word(image_of(fitted)),
        index=quote.word((catalog or Catalog.load()).repositories.pip),
        require=require,
        prepare=parts.prepare.strip(),
    )


def _shared(fitted: Plan) -> str:
    return quote.shared(fitted.cluster.shared_dir)
