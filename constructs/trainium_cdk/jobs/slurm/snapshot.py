"""The state of jobs on a cluster: the scripts that query it, and the parser of their output. Pure; a transport
(`transport.py`) runs them.

Three sources are read, as none has everything: Slurm's queue (forgets ended jobs after minutes), the state
files that stages write (incomplete if a stage was killed), and Slurm's accounting (if enabled).

A line of Slurm's is used for a stage only if it has the stage's number, its job name `<id>:<stage>` and its comment
`trn:<id>`: after a crash of its controller, or on a new cluster, Slurm gives the number to another job.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from trainium_cdk.jobs import quote, shell
from trainium_cdk.jobs.slurm.status import SAME, Down, Known, stage
from trainium_cdk.jobs.slurm.transport import unpack
from trainium_cdk.jobs.status import JobStatus, Stage, checkpoints_in, of_members, parse_int
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner import arrays

_ABSENT = 4


def head(cluster: SlurmCluster) -> str:
    """The beginning of each script: it sets the jobs' directory."""
    shared = quote.shared(cluster.shared_dir)
    own = 'unset "${!SQUEUE_@}" "${!SACCT_@}" "${!SCONTROL_@}" "${!SINFO_@}" SLURM_TIME_FORMAT  # the user\'s own defaults'
    functions = f"{shell.users(cluster)}\n{shell.read('ask.sh').decode()}"
    return (
        f"set -u\nexport LC_ALL=C.UTF-8 TZ=UTC\n{own}\ntrn={shared}/{cluster.folder}\ncluster={quote.word(cluster.identity)}\n"
        f"{functions}"
    )


def parts(id: str) -> tuple[str, str]:
    """The id of a job, and the index of a member of it; empty if it is none."""
    job, _, index = id.partition("/")
    return job, index


def ask_one(cluster: SlurmCluster, id: str, otherwise: str = "show") -> str:
    """The script ends with code 4 if the job does not exist. Of a member of an array, the answer is of the array.

    Args:
        otherwise: what is asked of another user's job: its state (`show`), else what only its owner can do.
    """
    return f"""{head(cluster)}
id={quote.word(parts(id)[0])}
# NFS caches for half a minute that a file does not exist; listing its folder refreshes that
: "$trn/jobs/$id"/state/* "$trn/jobs/$id"/logs/*
[ -f "$trn/jobs/$id/stages" ] || {_absent(cluster, otherwise)}
known "$id"
"""


def _absent(cluster: SlurmCluster, otherwise: str) -> str:
    return f'absent "$id" {quote.word(otherwise)}' if cluster.users else f"exit {_ABSENT}"


def ask_all(cluster: SlurmCluster, limit: int, *, others: bool = False, repair: bool = True) -> str:
    """The newest jobs, newest first; then those of other users that run or wait, if asked for.

    Args:
        repair: tell Slurm's controller what it forgot in a crash.
    """
    more = f'\nunset -f squeue\nput "me $(id -un)"\n{_ACTIVE}' if others else ""
    return f"""{head(cluster)}
mapfile -t jobs < <(
  cd "$trn/jobs" 2> /dev/null && find . -mindepth 2 -maxdepth 2 -regex '\\./[A-Za-z0-9][A-Za-z0-9.-]*/stages' -type f -printf '%T@ %h\\n' 2> /dev/null |
    sort -rn | head -n {int(limit)} | sed 's/^[^ ]* //'
)
for job in ${{jobs[@]+"${{jobs[@]}}"}}; do claim "${{job#./}}"; done
queue  # before the files, as in `known`
{"remind" if repair else ""}
tasks
if [ -n "$answer" ]; then printf '%s\\n' "$answer"; fi
unavailable
for job in ${{jobs[@]+"${{jobs[@]}}"}}; do describe "${{job#./}}"; done{more}
"""


_ROW = "%u|%P|%D|%A|%T|%r|%N|%S|%e|%j|%k"
_ACTIVE = f"""ask -o "$mark active {_ROW}"
if [ -n "$answer" ]; then printf '%s\\n' "$answer"; fi"""


SETTINGS = "trn-settings "
"""What comes before the record of a job's settings: a login message may come before that."""


def ask_settings(cluster: SlurmCluster, id: str) -> str:
    """A job's record: its first 200 kB, which is more than a valid one has."""
    return f"""{head(cluster)}
printf %s {quote.word(SETTINGS)}
head -c 200000 "$trn/jobs/"{quote.word(id)}/job.json
"""


def ask_active(cluster: SlurmCluster) -> str:
    """The jobs of all users that run or wait, from Slurm itself: neither a job's files nor the number of jobs can hide one."""
    return f"""{head(cluster)}
unset -f squeue
{_ACTIVE}
"""


def _ask_with_log(cluster: SlurmCluster, id: str, stage: str, node: int | None) -> str:
    """The job as in `ask_one`; then `$log` is a stage's log."""
    file = f"{stage}.log" if node is None else f"{stage}.{int(node)}.log"
    return f"{ask_one(cluster, id, 'read its log')}\nlog=$trn/jobs/{quote.word(id)}/logs/{quote.word(file)}"


def ask_log(
    cluster: SlurmCluster, id: str, stage: str, node: int | None, offset: int, most: int, tail: int | None = None
) -> str:
    """The job as in `ask_one`, then at most `most` bytes of a log from `offset` on, or from its last `tail` lines on, if they are after
    it. The state is read first: if the stage had ended, its log is complete. A log that is not a regular file (for example a pipe) is not
    opened."""
    last = (
        ""
        if tail is None
        else f"""
  last=$((size - $(head -c "$size" "$log" | tail -n {int(tail)} | wc -c)))
  if [ "$last" -gt "$begin" ]; then begin=$last; fi
  put "begin $begin\""""
    )
    return f"""{_ask_with_log(cluster, id, stage, node)}
if [ -f "$log" ]; then
  size=$(stat -L -c %s "$log") begin={int(offset)}{last}
  put "size $size"
  put "data $(tail -c +$((begin + 1)) "$log" | head -c {int(most)} | gzip -c | base64 -w 0)"
elif [ -e "$log" ]; then
  put 'no-file'
fi
"""


def ask_end(cluster: SlurmCluster, id: str, stage: str, node: int | None, most: int) -> str:
    """The job as in `ask_one`, then the end of a node's log, at most `most` bytes, after what Slurm wrote into the log of the stage's
    last attempt; without a node, or a log of it, the end of the stage's log."""
    own = "" if node is None else f"{stage}.{int(node)}.log"
    return f"""{_ask_with_log(cluster, id, stage, None)}
own=${{log%/*}}/{quote.word(own)}
end_of_log() {{
  if [ -f "$own" ]; then
    tail -c {int(most)} "$log" | tac | sed '/^trn: [a-z]*: Slurm job /q' | tac | grep -aE '^([0-9]+: )?(srun|slurmstepd): ' | tail -n 200
    tail -c {int(most)} "$own"
  else
    tail -c {int(most)} "$log"
  fi
}}
if [ -f "$log" ]; then put "data $(end_of_log | gzip -c | base64 -w 0)"; fi
"""


def ask_cancel(cluster: SlurmCluster, id: str) -> str:
    """Cancel the stages that run or wait, last stage first, or one member of an array, and wait up to 10 s until Slurm has done so.

    Slurm jobs are found by their unique names, so a damaged record of the job does not matter. squeue has just compared a member's number
    with the array's name: given to scancel, too, the name would cancel all members that wait (Slurm 22.05).
    """
    id, index = parts(id)
    named = '--name="$id:prepare,$id:precompile,$id:train"'
    folder, which = "$trn/jobs/$id", named
    cancel = 'for stage in train precompile prepare; do scancel --name="$id:$stage" || exit 5; done'
    # someone may have deleted its folder while it runs: then Slurm has all that is known of it
    recorded = f"""if [ ! -f "$trn/jobs/$id/stages" ]; then
  ask -t all {named} -o "$mark active {_ROW}"
  [ -n "$answer" ] || exit {_ABSENT}
  printf '%s\\n' "$answer"
  exit 0
fi
"""
    if index:
        folder, which = "$trn/jobs/$id/$member", '-r --name="$id:train" -j "$task"'
        cancel, recorded = 'scancel "$task" || exit 5', ""
    return f"""{head(cluster)}
id={quote.word(id)} member={quote.word(index)}
first "$trn/jobs/$id/cluster" 200
own=${{line:-$cluster}}
task=$(sed -n 's/^train //p' "$trn/jobs/$id/stages" 2> /dev/null)_$member
active() {{
  answer=''
  if [ "$own" = "$cluster" ]; then ask {which} -o %A; fi
}}
active
[ -d "{folder}" ] || [ -n "$answer" ] || {_absent(cluster, "cancel it")}
if [ -n "$answer" ]; then
  if [ -d "{folder}" ]; then : > "{folder}/cancelled"; fi
  {cancel}
  for _ in $(seq 1 50); do
    active
    [ -n "$answer" ] || break
    sleep 0.2
  done
fi
{recorded}known "$id"
"""


@dataclass
class _Raw:
    id: str
    described: dict[str, Any] = field(default_factory=dict)
    cluster: str | None = None
    stages: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    cancelled: bool = False
    submitted: int | None = None
    array: str = ""
    members: dict[str, list[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class Snapshot(NamedTuple):
    """A parsed response. `size` is None if the log does not exist, `begin` where its last lines begin, if they were asked for, `regular` False
    if it is not a regular file."""

    jobs: tuple[JobStatus, ...]
    size: int | None = None
    data: bytes = b""
    regular: bool = True
    begin: int | None = None


@dataclass
class _Slurm:
    """Slurm's records by job number. `down`: nodes that are down. `blocks`: capacity blocks that are not active, with their nodes. `full`: no block of the shared file system is free."""

    queue: dict[str, list[str]] = field(default_factory=dict)
    accounts: dict[str, list[str]] = field(default_factory=dict)
    down: list[Down] = field(default_factory=list)
    blocks: list[tuple[str, str]] = field(default_factory=list)
    full: bool = False
    tasks: dict[str, list[str]] = field(default_factory=dict)

    def task(self, id: str, number: str, index: str) -> list[str] | None:
        found = self.tasks.get(f"{number}_{index}")
        return found if found and found[6:] == [f"{id}:train", f"trn:{id}"] else None

    def row(self, id: str, stage: str, number: str) -> list[str] | None:
        """The queue's line of that stage; None if the number is of another job, or unknown."""
        found = self.queue.get(number)
        return found if found and found[6:] == [f"{id}:{stage}", f"trn:{id}"] else None

    def account(self, id: str, stage: str, number: str) -> list[str] | None:
        found = self.accounts.get(number)
        return found if found and found[6:] == [f"{id}:{stage}"] else None


_MARK = re.compile(r"trn-mark ([0-9a-f]{16,64})")
_OURS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,89}):(prepare|precompile|train)")


def parse(answer: str, cluster: SlurmCluster) -> Snapshot:
    """Parse a response; lines without its mark (for example a login message) are ignored."""
    lines = answer.split("\n")
    mark = next((found[1] for line in lines if (found := _MARK.fullmatch(line))), "")
    raws, ids = list[_Raw](), set[str]()
    slurm, active, me = _Slurm(), dict[tuple[str, str], _Raw](), ""
    size, data, regular, begin = None, b"", True, None
    for line in lines:
        before, _, ours = line.partition(" ")
        if not mark or before != mark:
            continue
        key, _, rest = ours.partition(" ")
        if key == "job":
            raws.append(_Raw(rest))
            ids.add(rest)
        elif key == "queue":
            slurm.queue[rest.partition("|")[0]] = rest.split("|", 7)
        elif key == "active" and len(row := rest.split("|", 10)) == 11:
            user, queue, nodes, *row = row
            name = _OURS.fullmatch(row[6])
            # users may give their jobs the same id
            if name and row[7] == f"trn:{name[1]}" and not (name[1] in ids and user == me):
                slurm.queue[row[0]] = row
                one = active.setdefault((user, name[1]), _Raw(name[1], {"user": user, "queue": queue, "nodes": nodes}))
                one.stages[name[2]] = row[0]
        elif key == "me":
            me = rest
        elif key == "task":
            number, index, *row = rest.split("|", 8)
            slurm.tasks[f"{number}_{index}"] = [index, *row]
        elif key == "sacct":
            slurm.accounts[rest.partition("|")[0]] = rest.split("|", 6)
        elif key == "down" and rest.count("|") >= 3:
            if (down := Down(*rest.split("|", 3))).nodes:  # sinfo has a line for a partition without such nodes, too
                slurm.down.append(down)
        elif key == "block" and "|" in rest:
            slurm.blocks.append((rest.partition("|")[0], rest.partition("|")[2]))
        elif key == "free":
            slurm.full = rest == "0"
        elif key == "size":
            size = parse_int(rest)
        elif key == "begin":
            begin = parse_int(rest)
        elif key == "data":
            data = unpack(rest)
        elif key == "no-file":
            regular = False
        elif raws:
            _of_job(raws[-1], key, rest)
    inactive = inactive_queue(cluster)
    jobs = tuple(_status(raw, slurm, cluster, inactive) for raw in [*raws, *active.values()])
    return Snapshot(jobs, size, data, regular, begin)


def inactive_queue(cluster: SlurmCluster) -> str:
    """The message for a queue whose partition is inactive: the reason and the fix."""
    return (
        "the queue is inactive: ParallelCluster stops a queue (fleet status PROTECTED) after 10 nodes that failed to start. "
        f"Find the reason (trn why {cluster.stack} --region {cluster.region}), fix it, then start the fleet again "
        f"(trn nodes start --stack {cluster.stack} --region {cluster.region})"
    )


def _of_job(raw: _Raw, key: str, rest: str) -> None:
    words = rest.split()
    if key == "json":
        try:
            found = json.loads(rest)
        except (ValueError, RecursionError):
            return
        raw.described = found if isinstance(found, dict) else {}
    elif key == "cluster":
        raw.cluster = rest
    elif key == "stage" and len(words) == 2:
        raw.stages[words[0]] = words[1]
    elif key == "state" and len(words) >= 5:
        raw.states[words[0]] = words[1:]
    elif key == "submitted":
        raw.submitted = parse_int(rest)
    elif key == "cancelled":
        raw.cancelled = True
    elif key == "array" and re.fullmatch(arrays.PATTERN, rest) and not arrays.problem(rest):
        raw.array = rest
    elif key == "member" and len(words) >= 6:
        raw.members[words[0]] = words[1:]
    elif key == "gone":
        raw.gone.add(rest)


def _status(raw: _Raw, slurm: _Slurm, cluster: SlurmCluster, inactive: str) -> JobStatus:
    stages: list[Stage] = []
    elsewhere = raw.cluster if raw.cluster not in (None, cluster.identity) else None
    members: tuple[Stage, ...] = ()
    for name, number in raw.stages.items():
        queue = raw.described.get("prepare_queue" if name == "prepare" else "queue")
        known = Known(
            before=stages[-1] if stages else None,
            elsewhere=elsewhere,
            inactive=inactive,
            full=cluster.shared_dir if slurm.full else "",
            down=tuple(d for d in slurm.down if d.queue == queue or (name == "prepare" and queue is None)),
            cpu=cluster.cpu is not None and queue == cluster.cpu.queue,
        )
        if raw.array and name == "train":
            members = _members(raw, number, slurm, known)
            stages.append(of_members(number, members))
            continue
        state = raw.states.get(name)
        known = known._replace(
            queue=None if elsewhere else slurm.row(raw.id, name, number),
            state=state if state and state[1] == number else None,  # else of an earlier job with this id
            account=None if elsewhere else slurm.account(raw.id, name, number),
            anothers=not elsewhere and number in slurm.queue,
            cancelled=raw.cancelled,
            blocks=tuple(id for id, nodes in slurm.blocks if nodes.startswith(f"{queue}-")),
        )
        stages.append(stage(name, number, known))
    described = raw.described
    return JobStatus(
        id=raw.id,
        kind=str(described.get("kind", "?")),
        queue=str(described.get("queue", "?")),
        instance_type=str(described.get("instance_type", "?")),
        nodes=parse_int(described.get("nodes")) or 0,
        global_batch_size=parse_int(described.get("global_batch_size")),
        stages=tuple(stages) or (Stage("train", "", "UNKNOWN", "its record on the cluster (stages) is damaged"),),
        directory=f"{cluster.shared_dir}/{cluster.folder}/jobs/{raw.id}",
        user=str(described.get("user") or ""),
        submitted=raw.submitted,
        members=members,
        checkpoints=checkpoints_in(
            f"{cluster.shared_dir}/{cluster.folder}/jobs/{raw.id}", described.get("checkpoints")
        ),
    )


def _members(raw: _Raw, number: str, slurm: _Slurm, everyone: Known) -> tuple[Stage, ...]:
    """The members of an array, each as a stage whose name is its index. `everyone`: what is known of all of them."""
    found = []
    for index in map(str, arrays.indices(raw.array)):
        state = raw.members.get(index)
        known = everyone._replace(
            queue=None if everyone.elsewhere else slurm.task(raw.id, number, index),
            state=state if state and state[1] == number else None,
            cancelled=raw.cancelled or index in raw.gone,
        )
        found.append(stage(index, f"{number}_{index}", known))
    if not raw.members and all(member.state == "LOST" for member in found):
        return tuple(found)
    # an array of which a member has begun is not submitted again with its token (`look_array` in submit_script.py)
    return tuple(
        replace(m, reason=m.reason.replace(SAME, f"it alone (--array {m.name}) with a new token")) for m in found
    )
