"""Slurm's programs: started with words, a clean environment, and their rows read so that no text of a job can imitate one.

A job is at most two jobs of Slurm's: `prepare`, and one for all other stages, which run one after the other in its allocation. Its name has the last one.
The input of sbatch: its options as words, and the batch script, which starts this program.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from .errors import Later, Refused
from .spec import JobSpec, StageSpec

NO_RESPONSE = re.compile(
    "[Cc]ommunication|Connection|[Ss]ocket|timed out|Unable to contact|Zero Bytes|Message (send|receive) failure|in standby mode"
    "|Unexpected message|Insane message|Header lengths|[Tt]ransport endpoint|Broken pipe|Network (is|dropped)|Host is down|No route to host|connection abort"
    "|Resource temporarily unavailable|Interrupted system call|Operation now in progress|No buffer space available"
)
"""Part of an error of Slurm's programs if the controller did not respond, or only in part: while it crashes or starts, for example. It
neither accepted nor rejected the request then (slurm_errno.c of Slurm 22.05; the errors of connect, send and recv in POSIX: they
print the C library's text; 2026-11-23)."""
SECONDS = 120
"""After which a program that does not end is ended. Each waits some 20 s for a controller that does not answer."""
STAGES = ("prepare", "precompile", "train")
"""In their order. One job of Slurm's carries out all stages that have its number, and has the name of the last one."""
_MOST = 2000  # characters of an error
_MOST_NAMES = 100_000
"""Names in a list of nodes."""
_LEFT_OUT = ("SBATCH_", "SQUEUE_", "SCONTROL_", "SINFO_", "SACCT_", "SACCTMGR_", "SRUN_", "SLURM_")
"""Variables of the user's own defaults, and of a job in which this runs: sbatch and srun would pass those on to another job."""
_KEPT = ("SLURM_CONF", "SLURM_JWT", "SLURM_SACK_")
"""Variables that say where Slurm is asked, and for which user."""
_BAR = "\x1f"


def run(*words: str, text: str | None = None, seconds: float = SECONDS) -> str:
    """Run a program of Slurm, and return its output. The user's own defaults do not apply; times are in UTC.

    Args:
        text: its input; without it, it has none.
        seconds: after which it is ended.

    Raises:
        Refused: Slurm refused that: nothing was changed.
        Later: the controller does not answer. It may have done it all the same.
    """
    env = environment()
    # what sbatch has, a job gets; and its times are relative
    env.update({"LC_ALL": "C.UTF-8"} if words[0] == "sbatch" else {"LC_ALL": "C.UTF-8", "TZ": "UTC"})
    try:
        given = (text or "").encode()
        done = subprocess.run(words, input=given, capture_output=True, env=env, timeout=seconds, check=False)
    except FileNotFoundError:
        raise Refused(
            f"there is no {words[0]} on this machine. Is it the head node, and its bootstrap complete?"
        ) from None
    except OSError as e:
        raise Refused(f"{words[0]} cannot be started: {e.strerror}") from None
    except subprocess.TimeoutExpired as e:
        raise Later(
            " ".join([_one_line(e.stderr or b""), f"{words[0]} timed out after {seconds:g} s"]).strip()
        ) from None
    if done.returncode:
        said = _one_line(done.stderr)
        if done.returncode < 0 or NO_RESPONSE.search(said):
            raise Later(said or f"{words[0]} was ended by signal {-done.returncode}")
        raise Refused(said or f"{words[0]} failed with exit code {done.returncode}")
    return done.stdout.decode(errors="replace")


def environment() -> dict[str, str]:
    """The variables for a program of Slurm: without the user's own defaults, and without the variables of a job in which this runs."""
    return {k: v for k, v in os.environ.items() if k.startswith(_KEPT) or not k.startswith(_LEFT_OUT)}


def _one_line(said: bytes) -> str:
    return " ".join(said.decode(errors="replace").split())[-_MOST:]


@dataclass(frozen=True)
class Row:
    """A job of Slurm's, or a member of an array, as squeue prints it.

    Attributes:
        uid: its user's number.
        number: of a member, the array's; else its own.
        index: of a member: 7, or 2-5,7%2 of those that wait together; else empty.
        nodes: those it has; `count`: how many it has, or wants.
        start, end, submitted: as Slurm prints them, in UTC.
        label: the number as Slurm shows it: 7, 8_3 or 8_[4-9].
    """

    uid: int
    user: str
    queue: str
    count: str
    number: str
    index: str
    state: str
    reason: str
    nodes: str
    start: str
    end: str
    label: str
    submitted: str
    name: str
    comment: str

    @property
    def mine(self) -> bool:
        return self.uid == os.getuid()

    @property
    def id(self) -> str:
        """The id of the job whose stage this is; empty if it is not a stage of a job."""
        id, _, stage = self.name.rpartition(":")
        return id if stage in STAGES and self._is_marked(id) else ""

    @property
    def stage(self) -> str:
        """The last one that it carries out."""
        return self.name.rpartition(":")[2]

    def of(self, id: str, stage: str, number: str) -> bool:
        """Return whether this is that stage. A number alone proves nothing: a controller that crashed gives it to another job."""
        return self.mine and self.number == number and self.name == f"{id}:{stage}" and self._is_marked(id)

    def _is_marked(self, id: str) -> bool:
        """Return whether `trn` has submitted it. A problem of the job may follow the mark (`comment`)."""
        return self.comment.partition(" ")[0] == f"trn:{id}"


_FIELDS = ("%U", "%u", "%P", "%D", "%F", "%K", "%T", "%r", "%N", "%S", "%e", "%i", "%V", "%j", "%k")
_NAMES = tuple(one.name for one in fields(Row))[1:]


def rows(
    *,
    numbers: Iterable[str] | None = None,
    names: Iterable[str] | None = None,
    ended: bool = False,
    members: bool = False,
    others: bool = False,
) -> list[Row]:
    """List the rows of Slurm's queue: of this user, unless others are asked for.

    Args:
        numbers, names: only these; of none, none.
        ended: also those that Slurm remembers.
        members: a row for each member of an array, also of those that wait together.
    """
    # no text of a job has a mark of this moment: a name with a line break cannot imitate a row
    mark = os.urandom(8).hex()
    words = ["squeue", "-h", "-a", "-o", mark + _BAR.join(_FIELDS)]
    words += [] if others else [f"--user={os.getuid()}"]
    words += ["-t", "all"] if ended else []
    words += ["-r"] if members else []
    for option, chosen in (("--jobs", numbers), ("--name", names)):
        if chosen is not None:
            if not (joined := ",".join(chosen)):
                return []
            words.append(f"{option}={joined}")
    try:
        said = run(*words)
    except Refused as e:
        if "Invalid job id" not in str(e):  # it has forgotten that job
            raise Later(str(e)) from None
        return []
    found = []
    for line in said.split(mark)[1:]:
        told = line.rstrip("\n").split(_BAR)
        if len(told) == len(_FIELDS) and told[0].isdigit():
            given = dict(zip(_NAMES, told[1:]))
            found.append(Row(int(told[0]), **{**given, "index": given["index"].replace("N/A", "")}))
    return found


def everybody() -> list[Row]:
    """The rows of all users, or none at all: who asks this decides by it whose work would end.

    Raises:
        Refused: Slurm shows each user only their own jobs.
        Later: Slurm does not answer.
    """
    if os.getuid() and "jobs" in private():
        raise Refused(
            "Slurm shows each user only their own jobs here (PrivateData=jobs), so that others' jobs are not known. Root sees all with squeue"
        )
    return rows(others=True)


def private() -> set[str]:
    """Return the values of PrivateData: the data that Slurm hides from other users."""
    found = re.search(r"^PrivateData *= *(\S+)", run("scontrol", "show", "config"), re.MULTILINE)
    return set(found[1].lower().split(",")) if found else set()


def comment(id: str, wrong: Iterable[str] = ()) -> str:
    """The comment of a job's stages. `wrong`: what is wrong with it now: root's service of the head node tells of it, and reads no file of a job."""
    return " ".join(filter(None, (f"trn:{id}", ",".join(sorted(set(wrong))))))


def stages_with(numbers: Mapping[str, str], stage: str) -> list[str]:
    """All stages of the Slurm job that carries out a stage, in their order.

    >>> stages_with({"prepare": "7", "precompile": "8", "train": "8"}, "train")
    ['precompile', 'train']
    """
    return [one for one in STAGES if stage in numbers and numbers.get(one) == numbers[stage]]


def field(name: str, line: str) -> str:
    """The value of a field of scontrol's line; empty without it.

    >>> field("NodeAddr", "NodeName=n-1 Arch=x86 NodeAddr=10.0.0.1 NodeHostName=n-1 Port=17001"), field("Extra", "NodeName=n-1")
    ('10.0.0.1', '')
    """
    found = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return found[1] if found else ""


def hostnames(text: str) -> list[str]:
    """The names in a list of Slurm's.

    >>> hostnames("a-[1-2,05],b,c[01-02]x")
    ['a-1', 'a-2', 'a-05', 'b', 'c01x', 'c02x']
    """
    found: list[str] = []
    for one in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found += _expand(one)
        if len(found) > _MOST_NAMES:
            break
    return found[:_MOST_NAMES]


def _expand(text: str) -> list[str]:
    before, bracket, rest = text.partition("[")
    inside, closed, after = rest.partition("]")
    if not bracket or not closed:
        return [text]
    found = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers = range(int(first), min(int(last or first), int(first) + _MOST_NAMES) + 1)
            found += [f"{before}{number:0{len(first)}}" for number in numbers]
    return [f"{name}{end}" for name in found for end in _expand(after)]


def seconds(text: str) -> int | None:
    """A length of time as Slurm prints it; None: there is no limit.

    >>> seconds("1-02:00:30"), seconds("2:00:00"), seconds("01:30"), seconds("UNLIMITED")
    (93630, 7200, 90, None)
    """
    found = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d\d)", text.strip())
    if found is None:
        return None
    days, hours, minutes, rest = (int(one or 0) for one in found.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + rest


def moment(text: str) -> int | None:
    """A time as Slurm prints it, in UTC, in seconds since 1970; None for anything else."""
    try:
        return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.timezone.utc).timestamp())
    except (ValueError, OverflowError):
        return None


def cancel(*names: str) -> None:
    """Cancel all jobs of this user by these names, which no other jobs have.

    Raises:
        Later: Slurm does not answer.
    """
    for name in names:
        try:
            run("scancel", f"--user={os.getuid()}", f"--name={name}")
        except Refused as e:
            raise Later(str(e)) from None


# --- what else Slurm tells of a cluster -------------------------------------------------------------------------------------------------


class Down(NamedTuple):
    """Nodes of a queue that are down since a time, with the reason that Slurm has."""

    queue: str
    since: str
    nodes: str
    reason: str


def down(most: int = 50) -> list[Down]:
    """The nodes that are down, with what ParallelCluster records of EC2; and those that PCS could not start, which it powers down."""
    words = ("sinfo", "-h", "-a", "-o", _BAR.join(("%R", "%H", "%N", "%E")))
    found = [Down(*line) for line in _lines(4, *words, "-t", "down,drain,fail")]
    found += [one for line in _lines(4, *words) if "(Error Code: " in (one := Down(*line)).reason and one not in found]
    return [one for one in found if one.nodes][:most]


def blocks(most: int = 50) -> list[tuple[str, str]]:
    """The capacity blocks that are not active, whose nodes ParallelCluster reserves: (id, nodes)."""
    pattern = re.compile(r"^ReservationName=pcluster-(cr-[0-9a-f]*) .* Nodes=([^ ]*) ", re.MULTILINE)
    try:
        return pattern.findall(run("scontrol", "-o", "show", "reservation"))[:most]
    except (Refused, Later):
        return []


class Account(NamedTuple):
    """A job in Slurm's accounting. It may seem to run for ever if the controller forgot it in a crash."""

    number: str
    state: str
    code: str
    nodes: str
    start: str
    end: str
    name: str


def accounts(numbers: Iterable[str], names: Iterable[str]) -> list[Account]:
    """The jobs of this user in Slurm's accounting. Without accounting: none."""
    words = ("sacct", "-X", "-n", "-P", f"--delimiter={_BAR}", f"--user={os.getuid()}", f"--jobs={','.join(numbers)}")
    fields = "JobIDRaw,State,ExitCode,NodeList,Start,End,JobName"
    return [Account(*line) for line in _lines(7, *words, f"--name={','.join(names)}", f"--format={fields}")]


def _lines(count: int, *words: str) -> list[list[str]]:
    """The lines of so many fields; none if Slurm does not answer: what is less without them."""
    try:
        lines = (line.split(_BAR) for line in run(*words).splitlines())
        return [line for line in lines if len(line) == count]
    except (Refused, Later):
        return []


# --- what sbatch gets -------------------------------------------------------------------------------------------------------------------

COMPILE_SECONDS = 7200
"""More time that an allocation has for the stages before its last one, whose time limit counts from its own beginning."""
_DEPENDENCY = "dependency"
"""An option that the user and we give."""


def batches(stages: Sequence[StageSpec]) -> list[Sequence[StageSpec]]:
    """The stages of each Slurm job, in their order."""
    prepare = [one for one in stages if one.name == "prepare"]
    return [part for part in (prepare, [one for one in stages if one.name != "prepare"]) if part]


def time_limit(stages: Sequence[StageSpec], most: float | None = None) -> int | None:
    """The seconds for which a Slurm job may run; None: the scheduler's.

    Args:
        most: seconds that the cluster allows; None: no limit. It takes nothing of the last stage's own.
    """
    own = stages[-1].seconds
    if own is None or len(stages) == 1:
        return own
    longer = own + COMPILE_SECONDS
    return longer if most is None else max(own, min(longer, int(most)))


def sbatch_options(
    job: JobSpec, stages: Sequence[StageSpec], folder: Path, *, after: str = "", most: float | None = None
) -> list[str]:
    """The options of a Slurm job.

    Args:
        stages: those that it carries out.
        folder: the job's.
        after: what it depends on, as `--dependency` has it.
        most: as of `time_limit`.
    """
    assert job.slurm is not None  # noqa: S101  a job of Slurm's
    slurm, stage = job.slurm, stages[-1]
    prepares = stage.name == "prepare"
    own = [] if prepares else slurm.options
    given = [one.partition("=")[2] for one in own if _is_dependency(one)]
    depends = ",".join(filter(None, (after, *given[-1:])))
    member = "%a" if job.array and stage.name == "train" else stage.name
    words = [
        f"--job-name={job.id}:{stage.name}",
        f"--comment={comment(job.id)}",
        f"--partition={slurm.prepare_queue if prepares else slurm.queue}",
        f"--nodes={1 if prepares else stage.nodes}",
        # the user's own srun would warn of 1 where it starts several
        *([] if stage.batch and stage.processes == 1 else [f"--ntasks-per-node={1 if prepares else stage.processes}"]),
        "--exclusive",
        "--mem=0",
        "--no-requeue" if slurm.restarts == 0 and not prepares else "--requeue",
        "--open-mode=append",
        f"--output={folder}/logs/{member}.log",
        *(f"--{name}={value}" for name, value in (("account", slurm.account), ("qos", slurm.qos)) if value),
        *(one for one in own if not _is_dependency(one)),
    ]
    seconds = time_limit(stages, most)
    if seconds and not prepares:
        words.append(f"--time={clock(seconds)}")
    if job.array and stage.name == "train":
        words.append(f"--array={job.array}")
    if depends:
        words += [f"--dependency={depends}", "--kill-on-invalid-dep=yes"]
    return words


def batch_script(runner: str, folder: Path, stages: Sequence[StageSpec]) -> str:
    """The batch script of a Slurm job."""
    words = ("/usr/bin/python3", "-I", runner, "stage", str(folder), *(one.name for one in stages))
    return f"#!/bin/bash\nexec {' '.join(map(shlex.quote, words))}\n"


def _is_dependency(option: str) -> bool:
    """Return whether sbatch reads an option as --dependency: it takes a beginning for the whole."""
    name = option[2:].partition("=")[0]
    return len(name) > 2 and _DEPENDENCY.startswith(name)


def clock(seconds: int) -> str:
    """Return hours, minutes and seconds, as sbatch reads them.

    >>> clock(90), clock(129_600)
    ('0:01:30', '36:00:00')
    """
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
