"""What a cluster knows of jobs: the scripts that ask it, and the reading of their answers. Pure; `slurm.py` carries
them over.

Three witnesses are asked, for none remembers everything: Slurm's queue (forgets ended jobs after minutes), the state
files that stages write (say nothing of a stage that was killed), and Slurm's accounting (where there is any).
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.jobs import quote
from trainium_cdk.jobs.backend import Expected, JobStatus, Stage
from trainium_cdk.jobs.errors import TransportError
from trainium_cdk.outputs import SlurmCluster

_TELL = r"""
tell() {
  local job=$trn/jobs/$1 file
  [ -e "$job/stages" ] || return 1
  printf 'trn-job %s\n' "$1"
  printf 'trn-json '
  tr -d '\n' < "$job/job.json"
  printf '\n'
  sed 's/^/trn-stage /' "$job/stages"
  for file in "$job"/state/prepare "$job"/state/precompile "$job"/state/train; do
    if [ -e "$file" ]; then printf 'trn-state %s %s\n' "${file##*/}" "$(cat "$file")"; fi
  done
  if [ -e "$job/cancelled" ]; then printf 'trn-cancelled\n'; fi
}
numbers() { sed 's/.* //' "$@" | paste -s -d , -; }
# squeue's answer in $said. What it has forgotten ("Invalid job id") is no error; no answer says nothing of the job.
ask() {
  said=$(squeue -h -a "$@" 2>&1) && return
  case $said in
    *'Invalid job id'*) said='' ;;
    *)
      printf '%s\n' "$said" >&2
      exit 5
      ;;
  esac
}
queue() {
  ask -t all "$@" -o 'trn-queue %A|%T|%r|%N|%S|%e'
  printf '%s\n' "$said"
}
# All that is known of one job. The queue comes before the files: what it says has ended has written how.
known() {
  queue -j "$2"
  tell "$1"
  accounting "$2"
}
accounting() {
  sacct -X -n -P -j "$1" -o JobIDRaw,State,ExitCode,NodeList,Start,End 2> /dev/null | sed 's/^/trn-sacct /' || true
}
"""
_ABSENT = 4


def head(cluster: SlurmCluster) -> str:
    """The begin of each script: where jobs live."""
    shared = f'"${{TRN_SHARED_ROOT:-}}"{quote.word(cluster.shared_dir)}'
    own = 'unset "${!SQUEUE_@}" "${!SACCT_@}"  # somebody\'s own defaults'
    return f"set -u\nexport LC_ALL=C.UTF-8 TZ=UTC\n{own}\ntrn={shared}/trn\n{_TELL}"


def ask_one(cluster: SlurmCluster, id: str) -> str:
    """Ends with code 4 where there is no such job."""
    return f"""{head(cluster)}
id={quote.word(id)}
# NFS remembers for half a minute that a file was not there; to open its folder makes it look anew
: "$trn/jobs/$id"/state/* "$trn/jobs/$id"/logs/*
[ -e "$trn/jobs/$id/stages" ] || exit {_ABSENT}
now=$(numbers "$trn/jobs/$id/stages")
known "$id" "$now"
"""


def ask_all(cluster: SlurmCluster, limit: int) -> str:
    """The newest jobs, newest first."""
    return f"""{head(cluster)}
cd "$trn/jobs" 2> /dev/null || exit 0
newest() {{ find . -mindepth 2 -maxdepth 2 -name stages -printf '%T@ %h\\n' | sort -rn | head -n {int(limit)}; }}
mapfile -t jobs < <(newest | sed 's/^[^ ]* //')
if [ "${{#jobs[@]}}" -eq 0 ]; then exit 0; fi
queue -j "$(numbers "${{jobs[@]/%//stages}}")"  # before the files, as in `known`
for job in "${{jobs[@]}}"; do
  tell "${{job#./}}"
done
"""


def ask_log(cluster: SlurmCluster, id: str, stage: str, node: int | None, offset: int, most: int) -> str:
    """The job as in `ask_one`, then at most `most` bytes of a log from `offset` on. State first: bytes of a stage
    that had ended by then are all there."""
    file = f"{stage}.log" if node is None else f"{stage}.{int(node)}.log"
    return f"""{ask_one(cluster, id)}
log=$trn/jobs/$id/logs/{quote.word(file)}
if [ -e "$log" ]; then
  printf 'trn-size %s\\ntrn-data ' "$(stat -c %s "$log")"
  tail -c +{int(offset) + 1} "$log" | head -c {int(most)} | gzip -c | base64 -w 0
  printf '\\n'
fi
"""


def ask_cancel(cluster: SlurmCluster, id: str) -> str:
    """Cancel what still runs or waits, last stage first, and wait a little until Slurm has done so."""
    return f"""{head(cluster)}
id={quote.word(id)}
[ -e "$trn/jobs/$id/stages" ] || exit {_ABSENT}
now=$(numbers "$trn/jobs/$id/stages")
ask -j "$now" -o %A
if [ -n "$said" ]; then
  : > "$trn/jobs/$id/cancelled"
  sort -rn <<< "$said" | xargs scancel
  for _ in $(seq 1 50); do
    ask -j "$now" -o %A
    [ -n "$said" ] || break
    sleep 0.2
  done
fi
known "$id" "$now"
"""


@dataclass
class _Raw:
    id: str
    described: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    cancelled: bool = False


@dataclass(frozen=True)
class Snapshot:
    """What the answer said. `size` is None where there is no such log."""

    jobs: tuple[JobStatus, ...]
    size: int | None = None
    data: bytes = b""


def parse(answer: str, cluster: SlurmCluster) -> Snapshot:
    """Read an answer; lines that are not ours (a chatty login, say) are passed over."""
    raws: list[_Raw] = []
    queue: dict[str, list[str]] = {}
    accounts: dict[str, list[str]] = {}
    size, data = None, b""
    for line in answer.split("\n"):
        key, _, rest = line.partition(" ")
        if key == "trn-job":
            raws.append(_Raw(rest))
        elif key == "trn-queue":
            queue[rest.partition("|")[0]] = rest.split("|")
        elif key == "trn-sacct":
            accounts[rest.partition("|")[0]] = rest.split("|")
        elif key == "trn-size":
            size = _whole(rest)
        elif key == "trn-data":
            data = _bytes(rest)
        elif raws:
            _of_job(raws[-1], key, rest)
    directory, inactive = f"{cluster.shared_dir}/trn/jobs", inactive_queue(cluster)
    jobs = tuple(_status(raw, queue, accounts, directory, inactive) for raw in raws if raw.stages)
    return Snapshot(jobs, size, data)


def inactive_queue(cluster: SlurmCluster) -> str:
    """Why a queue takes no jobs, and what to do. Slurm calls its partition inactive."""
    name = cluster.cluster_name
    return (
        "the queue is inactive: ParallelCluster stops a queue (fleet status PROTECTED) after 10 nodes that failed to start. "
        f"Find the reason in the log group /aws/parallelcluster/{name}-*, fix it, then restart the queue: "
        f"pcluster update-compute-fleet --cluster-name {name} --region {cluster.region} --status START_REQUESTED"
    )


def _bytes(text: str) -> bytes:
    """Raises TransportError: a log that is cut here would go on with a hole."""
    try:
        return gzip.decompress(base64.b64decode(text))
    except (ValueError, OSError, EOFError, zlib.error):
        raise TransportError("part of the head node's answer was lost. Ask again") from None


def _of_job(raw: _Raw, key: str, rest: str) -> None:
    words = rest.split()
    if key == "trn-json":
        try:
            found = json.loads(rest)
        except (ValueError, RecursionError):
            return
        raw.described = found if isinstance(found, dict) else {}
    elif key == "trn-stage" and len(words) == 2:
        raw.stages[words[0]] = words[1]
    elif key == "trn-state" and len(words) >= 5:
        raw.states[words[0]] = words[1:]
    elif key == "trn-cancelled":
        raw.cancelled = True


def _status(
    raw: _Raw, queue: Mapping[str, list[str]], accounts: Mapping[str, list[str]], directory: str, inactive: str
) -> JobStatus:
    stages: list[Stage] = []
    for name, number in raw.stages.items():
        before = stages[-1] if stages else None
        state = raw.states.get(name)
        if state and state[1] != number:
            state = None  # of another life of this id
        stages.append(
            _stage(name, number, before, queue.get(number), state, accounts.get(number), raw.cancelled, inactive)
        )
    described = raw.described
    return JobStatus(
        id=raw.id,
        kind=str(described.get("kind", "?")),
        queue=str(described.get("queue", "?")),
        instance_type=str(described.get("instance_type", "?")),
        nodes=_whole(described.get("nodes")) or 0,
        global_batch_size=_whole(described.get("global_batch_size")),
        stages=tuple(stages),
        directory=f"{directory}/{raw.id}",
        expected=_expected(described.get("expected")),
    )


def _expected(said: Any) -> Expected | None:
    try:
        return Expected(float(said["sequences_per_second"]), str(said["source"]))
    except (TypeError, KeyError, ValueError, OverflowError):
        return None


_SLURM = {
    "PENDING": "PENDING",
    "CONFIGURING": "PENDING",
    "REQUEUED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "SUSPENDED": "RUNNING",
    "STOPPED": "RUNNING",
    "RUNNING": "RUNNING",
    "COMPLETING": "RUNNING",
    "SIGNALING": "RUNNING",
    "STAGE_OUT": "RUNNING",
    "RESIZING": "RUNNING",
    "COMPLETED": "COMPLETED",
    "CANCELLED": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
    "DEADLINE": "TIMEOUT",
    "NODE_FAIL": "NODE_FAIL",
    "PREEMPTED": "NODE_FAIL",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "BOOT_FAIL": "NODE_FAIL",
    "FAILED": "FAILED",
}
_REASONS = {
    "None": "",
    "Dependency": "waits for {before}",
    "JobHeldUser": "held: somebody holds it, or its submission broke off: run that again with the same token",
    "JobHeldAdmin": "held by an administrator",
    "Resources": "waits for nodes",
    "Priority": "waits behind other jobs",
    "NonZeroExitCode": "{failed}",
    "ReqNodeNotAvail": "waits for the nodes that compiled: at least one is down or taken (ReqNodeNotAvail)",
    "DependencyNeverSatisfied": "did not run: {before} did not complete",
    "BeginTime": "starts again in a moment",
    "PartitionInactive": "{inactive}",
    "PartitionNodeLimit": "asks for more nodes than the queue has",
}


_STOPPED = {"CANCELLED": "", "TIMEOUT": "reached its time limit"}
"""What a stage that was told to stop has written down of it."""


def _stage(
    name: str,
    number: str,
    before: Stage | None,
    queue: list[str] | None,
    state: list[str] | None,
    account: list[str] | None,
    cancelled: bool,
    inactive: str,
) -> Stage:
    told = before.name if before else "an earlier stage"
    never = before is not None and before.state not in ("PENDING", "RUNNING", "COMPLETED")
    code = _whole(state[2]) if state and state[0] == "ended" else None
    failed = f"exit code {code}"
    if state and len(state) > 5 and _whole(state[5]) is not None and re.search(r"[\[,]", state[4]):  # several nodes
        failed += f", on node {state[5]} first"
    started = _whole(state[3]) if state and state[0] == "running" else None
    ended = _whole(state[3]) if state and state[0] == "ended" else None
    nodes = state[4] if state else ""
    if queue and len(queue) >= 6:
        said, reason = _SLURM.get(queue[1], "UNKNOWN"), queue[2]
        nodes, started, ended = queue[3] or nodes, _time(queue[4]) or started, _time(queue[5]) or ended
        if said in ("PENDING", "RUNNING"):
            ended, code = None, None
        if said == "PENDING":
            started = None
        known = _REASONS.get(reason.split(",")[0])
        words = reason if known is None else known.format(before=told, failed=failed, inactive=inactive)
        if said == "CANCELLED" and never:
            words = _REASONS["DependencyNeverSatisfied"].format(before=told)
        return Stage(name, number, said, words, nodes, code, started, ended)
    if account and len(account) >= 6:
        said = _SLURM.get(account[1].partition(" ")[0], "UNKNOWN")
        nodes, started, ended = account[3], _time(account[4]), _time(account[5])
        if code is None and ":" in account[2]:
            code = _whole(account[2].partition(":")[0])
            failed = f"exit code {code}"
        return Stage(name, number, said, failed if said == "FAILED" else "", nodes, code, started, ended)
    if code == 0:
        return Stage(name, number, "COMPLETED", "", nodes, code, None, ended)
    if state and len(state) > 5 and state[5] in _STOPPED:
        return Stage(name, number, state[5], _STOPPED[state[5]], nodes, code, None, ended)
    if cancelled:
        return Stage(name, number, "CANCELLED", "", nodes, code, None, ended)
    if code is not None:
        return Stage(name, number, "FAILED", failed, nodes, code, None, ended)
    if state:
        return Stage(
            name, number, "FAILED", "ended without a word: node failure, time limit or a kill", nodes, None, started
        )
    if never:
        return Stage(name, number, "CANCELLED", _REASONS["DependencyNeverSatisfied"].format(before=told))
    return Stage(
        name, number, "UNKNOWN", "Slurm has forgotten it, and it has left no word: it was cancelled while it waited"
    )


def _whole(said: object) -> int | None:
    """A number as a program prints it, or None."""
    if isinstance(said, int):
        return int(said)
    return int(said) if isinstance(said, str) and re.fullmatch(r"[0-9]{1,18}", said) else None


def _time(text: str) -> int | None:
    try:
        return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp())
    except (ValueError, OverflowError):
        return None
