"""The one shell script that submits a job: it runs on the head node, and is the same text for the same job. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, get_args

from trainium_cdk.jobs import quote, shell
from trainium_cdk.runner import arrays

if TYPE_CHECKING:
    from trainium_cdk.jobs.models import Plan, Template

RESULT = "trn-result: "
"""The prefix of the line in which the submission reports its result."""
LATER = 75
"""Exit code of a submission that has not finished: sending it again finishes it."""
TAKEN = 76
"""Exit code if the token is another job's."""
NO_RESPONSE = (
    "[Cc]ommunication|Connection|[Ss]ocket|timed out|Unable to contact|Zero Bytes|Message (send|receive) failure|in standby mode"
    "|Unexpected message|Insane message|Header lengths|[Tt]ransport endpoint|Broken pipe|Network (is|dropped)|Host is down|No route to host|connection abort"
    "|Resource temporarily unavailable|Interrupted system call|Operation now in progress|No buffer space available"
)
"""Part of sbatch's error (an extended regular expression of grep) if the controller did not respond, or only in part: while it crashes
or starts, for example. It neither accepted nor rejected the job then (slurm_errno.c of Slurm 22.05; the errors of connect, send and
recv in POSIX, of which sbatch prints the C library's text; 2026-11-23)."""
GRACE_SECONDS = 900
"""Seconds after which the first stage begins if Slurm forgets, in a crash of its controller, that it may begin at once."""


class Pieces(NamedTuple):
    """A script around three of its steps, which `slurm/batch.py` does once for several jobs: the lock, deleting what an interrupted
    submission has left, and making the folders."""

    before: str
    locked: str
    cleared: str
    made: str
    lock: str
    folders: str

    @property
    def text(self) -> str:
        """The whole script, of one job."""
        return f"{self.before}{self.lock}{self.locked}{LEFT}\n{self.cleared}{self.folders}\n{self.made}"


LOCK = """# One submission of an id at a time, also from two clients at once.
exec 9> "$trn/jobs/.locks/{lock}"
flock -w 60 9 || later "another submission of $id is still running"
"""
"""One of 256 locks: all jobs of a `submit_many` have the same one."""
LEFT = 'if [ -e "$job" ]; then undo; fi'
FOLDERS = 'mkdir -p "$job/logs" "$job/state" "$job/script" "$job/work"'

_SUBMIT = r"""#!/bin/bash
# {name}: submitted to Slurm by the job's user on the head node of {cluster}. Running it again changes nothing.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

id={name}
shared="${{TRN_SHARED_ROOT:-}}"{shared}
trn=$shared/{folder}
job=$trn/jobs/$id
digest={digest}
cluster={head_node} # job numbers are valid only on this cluster
unset "${{!SBATCH_@}}" "${{!SQUEUE_@}}" "${{!SCONTROL_@}}" # the user's own defaults

die() {{ printf '%s\n' "$*" >&2; exit 1; }}
taken() {{ printf '%s\n' "$id $*" >&2; exit {taken}; }}
# Running the same script again finishes what has begun.
later() {{ printf '%s\n' "$*" >&2; exit {later}; }}

{write}
# On a local disk of the head node, no compute node would find the job.
if [ ! -d "$shared" ] || {{ [ -z "${{TRN_SHARED_ROOT:-}}" ] && ! mountpoint -q "$shared"; }}; then
  die "$shared is not mounted on this machine. Is it the head node, and its bootstrap complete?"
fi
{users}
# The jobs' directory belongs to the job's user, the root of a new file system to root.
if [ ! -d "$trn/jobs/.locks" ] && ! mkdir -p "$trn/jobs/.locks" 2> /dev/null; then
  sudo -n install -d -o "$(id -u)" -g "$(id -g)" "$trn" "$trn/jobs" "$trn/jobs/.locks"
fi

{cut}
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

{begins}{after}previous='' compiled='' # on these nodes, which training must get
into=stages.part # where it is recorded
submit() {{
  local number options=({begin})
{wait}  if [ -n "$previous" ]; then options=(--dependency="afterok:$previous" --kill-on-invalid-dep=yes); fi
  if [ -n "$compiled" ]; then options+=(--nodelist="$compiled"); fi
{member}  : >> "$job/logs/$1.log" # NFS caches for half a minute that a file does not exist
  if ! {{ number=$(sbatch --parsable "${{options[@]}}" --output="$job/{log}logs/$1.log" "$job/$1.sbatch" "$job"); }} 2> "$job/sbatch.error"; then
    cat "$job/sbatch.error" >&2
    # no response is not a rejection: the submission is undone, and may be tried again
    if grep -qE {no_response} "$job/sbatch.error"; then exit {later}; fi
    # nor is it one if the controller crashed, forgot the stage before this one, and gave its number to this one
    if [ -n "$previous" ] && grep -q 'Job dependency problem' "$job/sbatch.error"; then exit {later}; fi
    return 1
  fi
  previous=${{number%%;*}}
  printf '%s %s\n' "$1" "$previous" >> "$job/$into"
}}

# Sets `rows`: what Slurm knows, a line for each of its jobs.
ask() {{
  if rows=$(squeue -h -a -t all "$@" 2>&1); then return 0; fi
  if [[ $rows != *'Invalid job id'* ]]; then later "Slurm does not answer: $rows"; fi
  rows=''
}}

{look_array}# Sets `how` of a stage: active, completed, over (it has written that it failed or was stopped, or Slurm reports that it
# was stopped), or lost: it has written no end, and Slurm does not know it, reports that it failed, or that it cannot start
# after the stage before it.
how='' answer='' nodes='' rows=''
look() {{ # stage number; after `ask`
  local state='' begun='' code='' why=''
{arrays}  if [[ $'\n'$rows =~ $'\n'"$2:$id:$1 "([^$'\n']*) ]]; then answer=${{BASH_REMATCH[1]}}; else answer=''; fi
  if [ -f "$job/state/$1" ]; then read -r state begun code _ nodes why < "$job/state/$1" || true; fi
  if [ "$begun" != "${{2%_*}}" ]; then state='' nodes=''; fi # of another Slurm job
  case ${{answer%% *}} in
    COMPLETED) how=completed ;;
    '' | FAILED | BOOT_FAIL | NODE_FAIL | OUT_OF_MEMORY)
      how=over
      if [ "$state" != ended ] || [ "$why" = LOST ]; then how=lost; fi
      ;;
    CANCELLED | DEADLINE | PREEMPTED | REVOKED | TIMEOUT)
      how=over
      if [ "${{answer#* }}" = DependencyNeverSatisfied ]; then how=lost; fi # the stage before it is not over
      ;;
    *) how=active ;;
  esac
  # Slurm's controller may have crashed, forgotten that, and started it again
  if [ "$how $state $code" = 'over ended 0' ]; then how=completed; fi
}}

# Submit again the stages that Slurm has lost, and those after them. Then let the first waiting stage begin.
resume() {{
  local stage number first='' waits='' numbers='' again=''
  while read -r _ number; do numbers+=,$number; done < "$job/stages"
  ask -j "${{numbers#,}}" -o '%A:%j %T %r' # of all stages at once
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
      if [ -z "$resubmitted" ]; then printf '%s' "$again" > "$job/stages.part"; fi
      resubmitted+=" $stage"
      forget "$stage"
      rm -f "$job/state/$stage" # it may get the same number again
      number=$previous
      submit "$stage" || later "Slurm has lost $stage of $id, and did not accept it again"
      if [ -z "$number" ]; then first=$previous waits=''; fi
    else
      again+="$stage $number"$'\n'
    fi
  done 3< "$job/stages"
  if [ -n "$resubmitted" ]; then
    mv "$job/stages.part" "$job/stages"
    rm -f "$job/released"
  fi
{release}  : > "$job/released"
}}

{let_begin}if [ -f "$job/cluster" ] && [ "$(< "$job/cluster")" != "$cluster" ]; then
  taken "is a job of another cluster on this file system (head node $(head -c 60 "$job/cluster")). Use a new token"
fi
if [ -s "$job/stages" ]; then
  [ "$(cat "$job/digest")" = "$digest" ] || taken "already exists as another job. Use a new token, or submit the same job"
  trap '' HUP INT TERM
  resume
  report true
  exit 0
fi

{require}# An interrupted submission may have left stages. The directory is the record of it, so it is deleted last.
undo() {{
  local stage
  for stage in {names}; do forget "$stage"; done
  rm -rf "$job"
}}
{cut}trap undo EXIT

# Scripts contain the user's environment: only the user may read them.
umask 077
{cut}umask 022
printf '%s\n' "$cluster" > "$job/cluster"
{files}
printf '%s\n' "$digest" > "$job/digest"

{stages}
trap '' HUP INT TERM # from here on the submission is finished, not undone
{finish}
report false
"""

_BEGINS = """# The first stage begins in some minutes, or as soon as everything is recorded, so that no stage can end before the next
# one is submitted. Unlike a held job, it begins even if Slurm forgets that it was released.
"""
_RELEASE = r"""  if [ -n "$first" ] && { [ ! -e "$job/released" ] || [ "$waits" = 'PENDING BeginTime' ]; }; then let_begin "$first"; fi
"""
_LET_BEGIN = r"""let_begin() {{ # number, whose name was checked just before
  local state
  if scontrol update JobId="$1" StartTime=now; then return 0; fi
  # released before, which could not be recorded: then it may run, or have ended
  state=$(squeue -h -a -j "$1" -o '%T' 2> /dev/null) || state=''
  if [ "$state" != RUNNING ] && [ "$state" != COMPLETING ]; then later "$id is not released yet: it begins within {grace} s"; fi
}}

"""
_FINISH = """mv "$job/stages.part" "$job/stages"
trap - EXIT
resume # Slurm's controller may have crashed in the meantime
resubmitted=''"""
_LOOK_ARRAY = r"""# Sets `how` of an array, as `look`. An array of which a member has begun is not submitted again.
look_array() { # number
  local state number code of=() ended=0
  ask -r -j "$1" --name="$id:train" -o '%T %r'
  how=active answer=$rows
  if [ -n "$answer" ]; then return 0; fi
  how=lost
  for state in "$job"/[0-9]*/; do
    of+=("$state")
    if [ ! -f "$state/state/train" ]; then continue; fi
    how=over
    read -r state number code _ < "$state/state/train" || true
    if [ "$state $code" = 'ended 0' ]; then ended=$((ended + 1)); fi
  done
  if [ "$ended" -eq "${#of[@]}" ]; then how=completed; fi
}

"""
_ARRAYS = """  if [ "$1" = train ] && [ -f "$job/array" ]; then
    look_array "$2"
    return 0
  fi
"""
_FINISH_ONE = """trap - EXIT
: > "$job/released\""""

_AFTER = r"""# Sets the dependency of the first stage on the last one of another job, unless that has completed. `id` and `job` stay this
# job's: if this one is refused, they are undone.
after_job() {{
  local other={id} from=$trn/jobs/{id} number ends
  if [ ! -f "$from/stages" ]; then die "there is no job $other on this cluster. Give another one as --after"; fi
  if [ "$(< "$from/cluster")" != "$cluster" ]; then die "$other is a job of another cluster on this file system. Remove --after"; fi
  number=$(sed -n 's/^train //p' "$from/stages")
{member}  ends=$(id=$other job=$from && ask -j "$number" -o "$number:%j %T %r" && look train "$number" && printf '%s' "$how") || exit
  case $ends in
    completed) ;;
    active) options+=(--dependency="afterok:$number" --kill-on-invalid-dep=yes) ;;
    *) die "${{from#"$trn/jobs/"}} has not completed, and does not run: this job would never begin. Remove --after, or submit $other again" ;;
  esac
}}

"""
_AFTER_MEMBER = r"""  if [ ! -d "$from"/{member} ]; then die "$other has no member {member}. Give another one as --after"; fi
  from+=/{member} number+=_{member}
"""
_WAIT = """  if [ -z "$previous" ]; then after_job; fi
"""

_ACCOUNT = r"""# Without accounting, Slurm accepts every name, and it means nothing.
config=$(scontrol show config) || later "Slurm does not answer"
if [[ $config != *AccountingStorageType*=*slurmdbd* ]]; then
  die "this cluster keeps no accounts, so that --account and --qos mean nothing. Remove them, or deploy with pcluster: {{accounting: ...}}"
fi
allowed=$(sacctmgr -n -P show assoc where user="$(id -un)" format=account,qos) || later "Slurm's accounting does not answer"
account={account} qos={qos} may=''
while IFS='|' read -r of_account of_qos; do
  if [ "${{account:-$of_account}}" = "$of_account" ] && {{ [ -z "$qos" ] || [[ ,$of_qos, == *",$qos,"* ]]; }}; then may=yes; fi
done <<< "$allowed"
if [ -z "$may" ]; then
  die "$(id -un) may not use${{account:+ account $account}}${{qos:+ qos $qos}}. An administrator can allow it (sacctmgr). Allowed are:" \
    "$(sed 's/|/ with qos /' <<< "${{allowed:-nothing}}" | paste -sd';')"
fi
"""

_PREPARE = """# Fetching uses a separate node, and is skipped if everything is already fetched.
declare -F addresses > /dev/null || addresses() { :; }
code=0
bash "$job/prepare.sh" "$job" check 3< <(addresses) || code=$?
case $code in
  0) ;;
  3) submit prepare ;;
  4) exit 1 ;; # it cannot run with what is on the cluster, as reported
  *) die "prepare.sh failed while it checked what is already fetched" ;;
esac
"""


def with_addresses(text: str, addresses: Mapping[str, str]) -> str:
    """A submission with presigned addresses of its workdir's objects. They are no part of the job's files, of its environment or of a command
    line: `prepare.sh` reads them from a pipe."""
    if not addresses:
        return text
    return f"addresses() {{ printf %s {quote.word(json.dumps(addresses))}; }}\n{text}"


def submit_script(
    name: str, fitted: Plan, head_node: str, require_venv: str, parts: Template, job_files: Mapping[str, bytes]
) -> Pieces:
    """The script.

    Args:
        head_node: id of its instance, which distinguishes clusters on the same file system.
        require_venv: lines that end it if the virtual environment is missing.
    """
    from trainium_cdk.jobs.models import StageName

    stages = "".join(_PREPARE if s == "prepare" else f"submit {s}\n" for s in fitted.stages)
    written = "".join(quote.file(_target(path), content) for path, content in job_files.items())
    chained = len(fitted.stages) > 1
    if not chained:
        stages = f"into=stages # one line is written at once\n{stages}"
    array = fitted.job.array
    if array:
        stages = f"printf '%s\\n' {quote.word(array)} > \"$job/array\"\n{stages}"
    each = (
        f"{{{','.join(map(str, arrays.indices(array)))},}}" if array else ""
    )  # with the empty word, braces of one word are a list, too
    looks = array or fitted.job.after
    require = parts.require if fitted.cluster.framework == "none" else require_venv + parts.require
    if fitted.job.account or fitted.job.qos:
        words = {name: quote.word(getattr(fitted.job, name) or "") for name in ("account", "qos")}
        require += _ACCOUNT.format(**words)
    folders = f'{FOLDERS} "$job/"{each}/{{logs,state,work}}' if array else FOLDERS
    text = _SUBMIT.format(
        name=name,
        cluster="".join(c for c in fitted.cluster.cluster_name if c.isprintable()),
        later=LATER,
        taken=TAKEN,
        no_response=quote.word(NO_RESPONSE),
        shared=quote.word(fitted.cluster.shared_dir),
        cut="\0",
        digest=digest_of(job_files),
        result=RESULT,
        head_node=quote.word(head_node),
        users=shell.users(fitted.cluster).rstrip("\n"),
        folder=fitted.cluster.folder,
        write=quote.WRITE,
        log="${log}" if array else "",
        member="  log=''\n  if [ \"$1\" = train ]; then log=%a/; fi\n" if array else "",
        look_array=_LOOK_ARRAY if looks else "",
        arrays=_ARRAYS if looks else "",
        begins=_BEGINS if chained else "",
        begin=f"--begin=now+{GRACE_SECONDS}" if chained else "",
        release=_RELEASE if chained else "",
        let_begin=_LET_BEGIN.format(grace=GRACE_SECONDS) if chained else "",
        finish=_FINISH if chained else _FINISH_ONE,
        after=_after(fitted.job.after) if fitted.job.after else "",
        wait=_WAIT if fitted.job.after else "",
        names=" ".join(get_args(StageName)),
        require=require + "\n" if require else "",
        files=written.rstrip("\n"),
        stages=stages.rstrip("\n"),
    )
    before, locked, cleared, made = text.split("\0")
    return Pieces(before, locked, cleared, made, LOCK.format(lock=lock_of(name)), folders)


def digest_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 of a job's files: what tells it from another job with its token."""
    return hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()


def lock_of(id: str) -> str:
    """The name of the lock of an id. It depends on the token, without the number at its end."""
    return hashlib.sha256(re.sub("-[0-9]+$", "", id)[-15:].encode()).hexdigest()[:2]


def _after(other: str) -> str:
    id, _, member = other.partition("/")
    return _AFTER.format(id=quote.word(id), member=_AFTER_MEMBER.format(member=int(member)) if member else "")


def _target(path: str) -> str:
    folder, _, filename = path.rpartition("/")
    return f'"$job/{folder + "/" if folder else ""}"{quote.word(filename)}' if folder else f'"$job/{path}"'
