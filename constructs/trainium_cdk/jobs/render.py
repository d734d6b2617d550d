"""From a job and a cluster to the one shell script that submits it. Pure: the same input gives the same text, byte
for byte.

A job is a chain of Slurm jobs, each waiting until the one before has completed, and cancelled by Slurm as soon as that
cannot be:

    prepare     fetches code, data and packages, on one node of the cheapest queue. A node is dearer than the head
                node, but it may fail, be requeued and go on where it was, and its state and log are Slurm's; it is
                left out where all is there.
    precompile  compiles the graphs into each node's own cache, and then ties `train` to its nodes.
    train       trains; requeued after a node failure, it goes on from its last checkpoint.

All of a job lies in one directory on the shared file system: scripts, state, logs, checkpoints, TensorBoard's files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote, shell, versions
from trainium_cdk.jobs.environment import cache_lines, launch_environment
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import Plan, StageName, expected, plan
from trainium_cdk.jobs.templates import Template
from trainium_cdk.outputs import SlurmCluster

RESULT = "trn-result: "
"""How the line begins in which the submission says what it did."""
LATER = 75
"""Exit code of a submission that has not finished: sent once more, it is."""
GRACE_SECONDS = 900
"""When the first stage begins where Slurm has forgotten, in a crash of its controller, that it may begin at once."""


@dataclass(frozen=True)
class Submission:
    """A job as it is sent.

    Attributes:
        id: `<name>-<token>`; the same token gives the same id, and is submitted once.
        text: the shell script that the job's user runs on the head node.
        directory: where the job lives on the cluster: logs, checkpoints, TensorBoard, scripts.
    """

    id: str
    text: str
    directory: str
    plan: Plan
    files: Mapping[str, bytes] = field(repr=False)
    """What the text writes into the directory."""

    @property
    def log_dir(self) -> str:
        return f"{self.directory}/logs"

    @property
    def tensorboard_dir(self) -> str:
        return f"{self.directory}/{self.plan.job.TENSORBOARD}"


def job_id(job: Job, token: str) -> str:
    """The id of a job submitted with `token`.

    Raises:
        JobError: the token is no such word.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", token):
        raise JobError(f"token is {token!r}. Use small letters, digits and hyphens, 40 at most, as 20261120-4f3a9c")
    return f"{job.label}-{token}"


def render(job: Job, cluster: SlurmCluster, token: str, *, catalog: Catalog | None = None) -> Submission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is no such word.
    """
    name, fitted = job_id(job, token), plan(job, cluster)
    parts = job.template(fitted)
    described = _describe(name, fitted, catalog)
    job_files: dict[str, bytes] = {
        "job.json": (json.dumps(described, indent=2, sort_keys=True) + "\n").encode(),
        "summary.json": (json.dumps({k: described[k] for k in _SUMMARY}, sort_keys=True) + "\n").encode(),
        "stage.sh": shell.read("stage.sh", "checkpoints.sh"),
        "node.sh": _node(name, fitted, parts, catalog).encode(),
    }
    if "prepare" in fitted.stages:
        job_files["fetch.sh"] = shell.fetch()
        job_files["prepare.sh"] = _prepare(fitted, parts).encode()
    for stage in fitted.stages:
        job_files[f"{stage}.sbatch"] = _batch(name, fitted, parts, stage).encode()
    job_files |= {f"script/{name}": content for name, content in job.files.items()}
    directory = f"{cluster.shared_dir}/trn/jobs/{name}"
    return Submission(name, _submit(name, fitted, parts, job_files), directory, fitted, job_files)


_SUMMARY = ("kind", "queue", "instance_type", "nodes", "global_batch_size", "expected")
"""What `trn list` shows of a job: one line, so that no file of a job, however long, is read whole for it."""


def _describe(name: str, fitted: Plan, catalog: Catalog | None) -> dict[str, Any]:
    job, published = fitted.job, expected(fitted, catalog)
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
        "expected": asdict(published) if published else None,
    }


def _batch(name: str, fitted: Plan, parts: Template, stage: StageName) -> str:
    job = fitted.job
    prepare = stage == "prepare"
    nodes = 1 if prepare else job.nodes
    tasks = 1 if prepare else job.processes_per_node
    options = [
        f"--job-name={name}:{stage}",
        f"--comment=trn:{name}",
        f"--partition={fitted.prepare_queue if prepare else fitted.fleet.queue}",
        f"--nodes={nodes}",
        f"--ntasks-per-node={tasks}",
        "--exclusive",
        "--mem=0",
        "--no-requeue" if job.restarts == 0 and not prepare else "--requeue",
        "--open-mode=append",
    ]
    if fitted.constraint and not prepare:
        options.append(f"--constraint={fitted.constraint}")
    if job.time_limit and stage == "train":
        options.append(f"--time={job.time_limit}")
    body = {
        "prepare": ['srun --nodes=1 --ntasks=1 bash "$job/prepare.sh" "$job" fetch'],
        "precompile": ["rendezvous", parts.before, "launch", "check_compiled", "keep_nodes"],
        "train": ["compare_nodes" if job.precompile else "", "rendezvous", parts.before, "launch"],
    }[stage]
    lines = ["#!/bin/bash", *(f"#SBATCH {o}" for o in options)]
    limit = f" restarts={job.restarts}" if job.restarts and not prepare else ""
    return "\n".join([*lines, f"job=$1 stage={stage}{limit}", '. "$job/stage.sh"', "begin", *filter(None, body), ""])


def _venv(fitted: Plan) -> str:
    assert isinstance(fitted.cluster, SlurmCluster)  # noqa: S101
    venv = fitted.cluster.venv
    return quote.word(venv) if venv.startswith("/") else f'"$HOME"/{quote.word(venv)}'


def _require_venv(fitted: Plan) -> str:
    return f"""venv={_venv(fitted)}
if [ ! -f "$venv/bin/activate" ]; then
  die "there is no virtual environment at $venv: the head node's bootstrap has not finished, or failed"
fi
"""


def _prepare(fitted: Plan, parts: Template) -> str:
    return f"""#!/bin/bash
# bash prepare.sh JOB fetch|check: whatever this job needs and the cluster has not got yet.
job=$1 mode=$2
trn=${{job%/jobs/*}}
venv={_venv(fitted)}
. "$job/fetch.sh"
{parts.prepare.strip()}
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
# the port of Neuron's collectives must not be taken for an outgoing connection
sudo -n sysctl -q -w net.ipv4.ip_local_reserved_ports=48620 > /dev/null 2>&1 || say "port 48620 could not be reserved"
{body}
}}

# Who fails first is noted: the others are stopped for it, and their exit codes say nothing.
ended() {{
  local code=$?
  if [ "$code" -ne 0 ] && [ "$code" -ne 143 ]; then
    (set -C && printf '%s %s\n' "$code" "$NODE_RANK" > "$job/state/$stage.failed") 2> /dev/null || true
  fi
}}
trap ended EXIT

run 2>&1 | tee -a "$job/logs/$stage.$NODE_RANK.log"
"""


def _node(name: str, fitted: Plan, parts: Template, catalog: Catalog | None) -> str:
    env = launch_environment(fitted, catalog)
    venv = _venv(fitted)
    activate = f"venv={venv}\n"
    if fitted.cluster.framework == "none":
        activate += 'if [ -f "$venv/bin/activate" ]; then . "$venv/bin/activate"; fi'
    else:
        activate += (
            'if [ ! -f "$venv/bin/activate" ]; then die "there is no virtual environment at $venv"; fi\n'
            '. "$venv/bin/activate"'
        )
    ranks = ""
    if fitted.job.processes_per_node > 1:
        ranks = "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS\n"
    return _NODE.format(
        name=name,
        cores=fitted.fleet.cores,
        environment="\n".join(f"export {k}={quote.word(v)}" for k, v in sorted(env.items())),
        cache=fitted.job.cache_set,
        cache_lines=cache_lines(fitted),
        versions=versions.node_check(fitted.cluster, fitted.needs_neuron, catalog),
        check="check_versions\n" if fitted.job.CHECKS_VERSIONS else "",
        helpers=parts.helpers,
        activate=activate,
        body=ranks + parts.node,
    )


_SUBMIT = r"""#!/bin/bash
# {name}: submitted to Slurm by the job's user on the head node of {cluster}. Running it again changes nothing.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

id={name}
shared="${{TRN_SHARED_ROOT:-}}"{shared}
trn=$shared/trn
job=$trn/jobs/$id
digest={digest}
cluster={head_node} # numbers of Slurm jobs mean something there alone
unset "${{!SBATCH_@}}" "${{!SQUEUE_@}}" "${{!SCONTROL_@}}" # somebody's own defaults

die() {{
  printf '%s\n' "$*" >&2
  exit 1
}}

# What is begun is finished by the same script, run once more.
later() {{
  printf '%s\n' "$*" >&2
  exit {later}
}}

# On a disk of the head node alone, no compute node would find the job.
if [ ! -d "$shared" ] || {{ [ -z "${{TRN_SHARED_ROOT:-}}" ] && ! mountpoint -q "$shared"; }}; then
  die "$shared is not mounted on this machine. Is it the head node, and its bootstrap complete?"
fi
{users}
# The jobs' directory belongs to the job's user, the top of a new file system to root.
if ! mkdir -p "$trn/jobs/.locks" 2> /dev/null; then
  sudo -n install -d -o "$(id -u)" -g "$(id -g)" "$trn" "$trn/jobs" "$trn/jobs/.locks"
fi

# One submission of an id at a time, also from two clients at once.
exec 9> "$trn/jobs/.locks/{lock}"
flock -w 60 9 || later "another submission of $id is still under way"

resubmitted=''
report() {{
  local stages='' name number
  while read -r name number; do stages+="${{stages:+, }}\"$name\": $number"; done < "$job/stages"
  printf '{result}{{"id": "%s", "existing": %s, "resubmitted": "%s", "stages": {{%s}}}}\n' \
    "$id" "$1" "${{resubmitted# }}" "$stages"
}}

# A Slurm controller that crashes forgets the last seconds, and gives the numbers of lost jobs to others. So a number
# proves nothing: each Slurm job is found by its name, which no other job has.
forget() {{ scancel --name="$id:$1" || later "Slurm does not answer"; }}

# The first stage begins some minutes from now, or as soon as all is written down, so that no stage can end before the
# next one knows of it. Unlike a job that is held, it begins by itself where Slurm forgets that it was let go.
previous='' compiled='' # on these nodes, which training must get
submit() {{
  local number options=(--begin=now+{grace})
  if [ -n "$previous" ]; then options=(--dependency="afterok:$previous" --kill-on-invalid-dep=yes); fi
  if [ -n "$compiled" ]; then options+=(--nodelist="$compiled"); fi
  : >> "$job/logs/$1.log" # NFS remembers for half a minute that a file was not there
  if ! {{ number=$(sbatch --parsable "${{options[@]}}" --output="$job/logs/$1.log" "$job/$1.sbatch" "$job"); }} 2> "$job/sbatch.error"; then
    cat "$job/sbatch.error" >&2
    # no answer is no refusal: it is undone, and may be tried again
    if grep -qE 'Connection|timed out|Unable to contact|Zero Bytes|Socket' "$job/sbatch.error"; then exit {later}; fi
    return 1
  fi
  previous=${{number%%;*}}
  printf '%s %s\n' "$1" "$previous" >> "$job/stages.part"
}}

# How a stage is: active, completed, over (it has written that it failed or was stopped, or Slurm says that it was
# stopped), or lost: it has not ended by itself, and Slurm does not know it, or says that it failed.
how='' answer='' nodes=''
look() {{ # stage number
  local state='' begun='' code='' why=''
  if ! answer=$(squeue -h -a -t all -j "$2" --name="$id:$1" -o '%T %r' 2>&1); then
    if [[ $answer != *'Invalid job id'* ]]; then later "Slurm does not answer: $answer"; fi
    answer=''
  fi
  if [ -f "$job/state/$1" ]; then read -r state begun code _ nodes why < "$job/state/$1" || true; fi
  if [ "$begun" != "$2" ]; then state='' nodes=''; fi # of another Slurm job
  case ${{answer%% *}} in
    COMPLETED) how=completed ;;
    '' | FAILED | BOOT_FAIL | NODE_FAIL | OUT_OF_MEMORY)
      how=over
      if [ -z "$answer" ] && [ "$state $code" = 'ended 0' ]; then how=completed; fi
      if [ "$state" != ended ] || [ "$why" = LOST ]; then how=lost; fi
      ;;
    CANCELLED | DEADLINE | PREEMPTED | REVOKED | TIMEOUT) how=over ;;
    *) how=active ;;
  esac
}}

# Submit again what Slurm has lost, and what was to follow it. Then let the first stage that waits begin.
resume() {{
  local stage number first='' waits=''
  rm -f "$job/stages.part"
  previous=''
  while read -r stage number <&3; do
    if [ -z "$resubmitted" ]; then
      look "$stage" "$number"
      if [ "$how" = over ] || [ -e "$job/cancelled" ]; then break; fi
      if [ "$how $stage" = 'completed precompile' ]; then compiled=$nodes; fi
      if [ "$how" = active ]; then
        if [ -z "$first" ]; then first=$number waits=$answer; fi
        previous=$number
      fi
    fi
    if [ "$how" = lost ]; then
      resubmitted+=" $stage"
      forget "$stage"
      rm -f "$job/state/$stage" # it may get the same number once more
      number=$previous
      submit "$stage" || later "Slurm has lost $stage of $id, and does not take it again"
      if [ -z "$number" ]; then first=$previous waits=''; fi
    else
      printf '%s %s\n' "$stage" "$number" >> "$job/stages.part"
    fi
  done 3< "$job/stages"
  if [ -n "$resubmitted" ]; then
    mv "$job/stages.part" "$job/stages"
    rm -f "$job/released"
  else
    rm -f "$job/stages.part"
  fi
  if [ -n "$first" ] && {{ [ ! -e "$job/released" ] || [ "$waits" = 'PENDING BeginTime' ]; }}; then let_begin "$first"; fi
  : > "$job/released"
}}

let_begin() {{ # number, whose name was looked at just before
  local state
  if scontrol update JobId="$1" StartTime=now; then return 0; fi
  # let go before, and this could not be noted: then it may run, or have ended
  state=$(squeue -h -a -j "$1" -o '%T' 2> /dev/null) || state=''
  if [ "$state" != RUNNING ] && [ "$state" != COMPLETING ]; then later "$id is not let go yet: it begins within {grace} s"; fi
}}

if [ -f "$job/cluster" ] && [ "$(< "$job/cluster")" != "$cluster" ]; then
  die "$id is a job of another cluster on this file system (head node $(head -c 60 "$job/cluster")). Use a new token"
fi
if [ -e "$job/stages" ]; then
  [ "$(cat "$job/digest")" = "$digest" ] || die "$id is another job already. Use a new token, or submit what it was"
  trap '' HUP INT TERM
  resume
  report true
  exit 0
fi

{require}# A submission that broke off may have left stages. The directory is what tells of it, so it goes last.
undo() {{
  local stage
  for stage in {names}; do forget "$stage"; done
  rm -rf "$job"
}}
if [ -e "$job" ]; then undo; fi
trap undo EXIT

# Scripts carry the user's environment: nobody else reads them.
(
  umask 077
  mkdir -p "$job/logs" "$job/state" "$job/script" "$job/work"
)
printf '%s\n' "$cluster" > "$job/cluster"
{files}
printf '%s\n' "$digest" > "$job/digest"

{stages}
trap '' HUP INT TERM # from here on it is finished, not undone
mv "$job/stages.part" "$job/stages"
trap - EXIT
resume # Slurm's controller may have crashed meanwhile
resubmitted=''
report false
"""

_PREPARE = """# Fetching takes a node of its own, once: nothing waits for it where all is there already.
code=0
bash "$job/prepare.sh" "$job" check || code=$?
case $code in
  0) ;;
  3) submit prepare ;;
  4) exit 1 ;; # it cannot run with what is there, as reported
  *) die "prepare.sh failed while it looked for what is there" ;;
esac
"""


def _submit(name: str, fitted: Plan, parts: Template, job_files: dict[str, bytes]) -> str:
    stages = "".join(_PREPARE if s == "prepare" else f"submit {s}\n" for s in fitted.stages)
    written = "".join(quote.file(_target(path), content) for path, content in job_files.items())
    executable = [f for f in job_files if f.startswith("script/")]
    written += "".join(f"chmod 700 {_target(f)}\n" for f in executable)
    require = parts.require if fitted.cluster.framework == "none" else _require_venv(fitted) + parts.require
    assert isinstance(fitted.cluster, SlurmCluster)  # noqa: S101
    digest = hashlib.sha256(repr(sorted(job_files.items())).encode()).hexdigest()
    return _SUBMIT.format(
        name=name,
        cluster="".join(c for c in fitted.cluster.cluster_name if c.isprintable()),
        later=LATER,
        lock=hashlib.sha256(name.encode()).hexdigest()[:2],
        shared=quote.word(fitted.cluster.shared_dir),
        digest=digest,
        result=RESULT,
        head_node=quote.word(fitted.cluster.head_node_id),
        users=shell.read("users.sh").decode().rstrip("\n"),
        grace=GRACE_SECONDS,
        names=" ".join(get_args(StageName)),
        require=require + "\n" if require else "",
        files=written.rstrip("\n"),
        stages=stages.rstrip("\n"),
    )


def _target(path: str) -> str:
    folder, _, filename = path.rpartition("/")
    return f'"$job/{folder + "/" if folder else ""}"{quote.word(filename)}' if folder else f'"$job/{path}"'
