"""The one shell script that submits a job: it runs on the head node, and is the same text for the same job. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import get_args

from trainium_cdk.jobs import quote, shell
from trainium_cdk.jobs.plan import Plan, StageName
from trainium_cdk.jobs.templates import Template

RESULT = "trn-result: "
"""How the line begins in which the submission says what it did."""
LATER = 75
"""Exit code of a submission that has not finished: sent once more, it is."""
GRACE_SECONDS = 900
"""When the first stage begins where Slurm has forgotten, in a crash of its controller, that it may begin at once."""

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


def submit_script(
    name: str, fitted: Plan, head_node: str, require_venv: str, parts: Template, job_files: Mapping[str, bytes]
) -> str:
    """The script.

    Args:
        head_node: id of its instance, which tells this cluster from another one on the same file system.
        require_venv: lines that end it where the virtual environment is missing.
    """
    stages = "".join(_PREPARE if s == "prepare" else f"submit {s}\n" for s in fitted.stages)
    written = "".join(quote.file(_target(path), content) for path, content in job_files.items())
    executable = [f for f in job_files if f.startswith("script/")]
    written += "".join(f"chmod 700 {_target(f)}\n" for f in executable)
    require = parts.require if fitted.cluster.framework == "none" else require_venv + parts.require
    digest = hashlib.sha256(repr(sorted(job_files.items())).encode()).hexdigest()
    return _SUBMIT.format(
        name=name,
        cluster="".join(c for c in fitted.cluster.cluster_name if c.isprintable()),
        later=LATER,
        lock=hashlib.sha256(name.encode()).hexdigest()[:2],
        shared=quote.word(fitted.cluster.shared_dir),
        digest=digest,
        result=RESULT,
        head_node=quote.word(head_node),
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
