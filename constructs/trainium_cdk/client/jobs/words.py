"""Words of a job. In the programs that kinds start: places, launchers, values as a command line takes them. In what users give: what can be passed
to a program; the forms of a job's fields, from names and paths to time limits and options of sbatch; and the errors about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from trainium_cdk.client.jobs.quote import printed, split
from trainium_cdk.client.jobs.scheduler_calls import calls_of
from trainium_cdk.errors import similar
from trainium_cdk.runner.spec import ARRAY_PATTERN, MAX_MEMBERS, Part, Place, array_problem
from trainium_cdk.runner.spec import Word as Word
from trainium_cdk.runner.spec import Words as Words
from trainium_cdk.text import MISMATCH, Text, fix_of

JOB, FILES, TRN, CACHE, CHECKPOINT, ID = map(Place, ("job", "files", "trn", "cache", "checkpoint", "id"))
"""See `runner.spec.Place`."""
HUB: Word = (TRN, "/hf_cache")
"""The folder HF_HOME: models and data sets of Hugging Face, which all nodes read."""
MAX_SCRIPT_BYTES = 5_000_000
MAX_WORD_BYTES = 131_071
"""Longest argument, or NAME=VALUE, that Linux passes to a program (MAX_ARG_STRLEN in linux/binfmts.h, less the NUL)."""
MAX_WORDS_BYTES = 1_000_000
"""Longest arguments and variables together. Linux takes 2 MiB in all; the rest is for the node's own variables."""


def launch(*program: Word) -> Words:
    """The words that start a Python program once for each NeuronCore of the node.

    torchrun is started as a module: the script `torchrun` runs the Python it was installed with, which does not have the job's packages.
    """
    return (
        *("python3", "-m", "torch.distributed.run"),
        *("--nproc_per_node", (Place("processes"),), "--nnodes", (Place("nodes"),), "--node_rank", (Place("node"),)),
        *("--master_addr", (Place("master"),), "--master_port", (Place("port"),)),
        *program,
    )


def starts_several(program: Words) -> bool:
    """Say whether a launcher in a program starts one process for each NeuronCore."""
    return (Place("processes"),) in program


def options(given: Iterable[str]) -> Words:
    """Options of a program that a job adds, from KEY=VALUE or KEY alone."""
    return tuple(word for each in given for word in f"--{each}".split("=", 1))


def number(value: float) -> str:
    """A number as the vendors' programs read it.

    >>> number(0.00015), number(6e-3), number(2e-5)
    ('0.00015', '0.006', '2e-05')
    """
    return f"{value:.10g}"


def shared(path: str) -> tuple[Part, ...]:
    """A path of a shared file system, as a word."""
    return (Place("root"), path)


def on_cluster(path: str | None, mounts: Iterable[str]) -> tuple[Word, ...]:
    """A path as `Job.require` takes it, where it is on a shared file system, which the head node can read; else nothing."""
    return (shared(path),) if path and any(f"{path}/".startswith(f"{mount}/") for mount in mounts) else ()


def passable(what: str, word: str) -> int:
    """The size in bytes of an argument. Raises an error if it cannot be passed to a program."""
    if "\0" in word:
        raise wrong(f"{what} contains a NUL byte, which cannot be passed to a program. Remove it")
    try:
        size = len(word.encode())
    except UnicodeEncodeError:
        raise wrong(f"{what} contains bytes that are not UTF-8 text. Put them in a file, and give its path") from None
    if size > MAX_WORD_BYTES:
        raise wrong(
            f"{what} has {size:,} bytes; Linux passes at most {MAX_WORD_BYTES:,} to a program in one argument. Put it in a "
            "file on the shared file system, and give its path"
        )
    return size + 1


def fits(size: int) -> None:
    if size > MAX_WORDS_BYTES:
        raise wrong(
            f"arguments and env have {size:,} bytes together; {MAX_WORDS_BYTES:,} is the maximum. Put them in a file on the "
            "shared file system, and give its path"
        )


_TIME = Text(
    r"^([0-9]{1,9}|([0-9]{1,5}-)?[0-9]{1,5}(:[0-9]{2}){0,2}|([0-9]{1,9}[dhms]){1,4})$",
    "minutes, or HH:MM:SS, or D-HH:MM:SS, or 90m, 12h, 2d",
    "2-00:00:00",
    max_length=20,
)
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_MAX_DAYS = 365


def wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("trn", "{message}", {"message": message})


def check_warm_up(warmup: int | None, steps: int) -> None:
    """Refuses a warm-up that lasts as long as the whole training: the learning rate would never reach its peak."""
    if warmup is not None and warmup >= steps:
        raise wrong(
            f"warmup_steps is {warmup}, but the whole training has {steps} steps. Give fewer warm-up steps, or more steps"
        )


def check_run_steps(run: int | None, steps: int) -> None:
    """Refuses steps after the whole training, where the learning rate is 0."""
    if run is not None and run > steps:
        raise wrong(
            f"run_steps is {run}, but the whole training has {steps} steps, after which its learning rate is 0. Give {steps} or less, or "
            f"more steps (--steps {run})"
        )


def check_checkpoints(last: int, interval: int) -> None:
    """Refuses a training whose last steps would be in no checkpoint, where the program writes one every `interval` steps only."""
    if last > interval and last % interval:
        raise wrong(
            f"it stops after step {last}, but writes checkpoints every {interval} steps only, so that the last {last % interval} "
            f"steps would be lost. Stop after {last - last % interval} steps, or give another --checkpoint-interval"
        )


def shown(value: object) -> str:
    text = repr(value[:100] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def seconds(limit: str) -> int:
    """A time limit in seconds, in Slurm's formats, or with units: a number alone is minutes, `1:30` is minutes and seconds.

    >>> seconds("90"), seconds("1:30"), seconds("2:00:00"), seconds("1-12"), seconds("1-00:30"), seconds("1h30m")
    (5400, 90, 7200, 129600, 88200, 5400)
    """
    if parts := re.findall("([0-9]+)([dhms])", limit):
        return sum(int(count) * _UNITS[unit] for count, unit in parts)
    days, dash, rest = limit.rpartition("-")
    numbers = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, secs = [*numbers, 0, 0][:3]
    elif len(numbers) == 1:
        hours, minutes, secs = 0, numbers[0], 0
    else:
        hours, minutes, secs = [0, *numbers][-3:]
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + secs


def _possible(limit: str) -> str:
    """Refuses a limit that Slurm reads as no limit (0), or cannot store."""
    if any(int(part) >= 60 for part in limit.split(":")[1:]):
        raise wrong(
            f"time_limit is {shown(limit)}: minutes and seconds after a colon are at most 59. Write {_TIME.fix}"
        )
    if not 60 <= seconds(limit) <= _MAX_DAYS * 86_400:
        raise wrong(
            f"time_limit is {shown(limit)}: it must be at least 1 minute and at most {_MAX_DAYS} days. "
            f"Write {_TIME.fix}"
        )
    return limit


TimeLimit = Annotated[str, _TIME, AfterValidator(_possible)]
Name = Annotated[
    str,
    Text(
        r"^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$",
        "small letters, digits, dots and hyphens, at most 40, with a letter or digit as the first and the last",
        "bert-large-2",
    ),
]
WORD = Text(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
    "at most 63 letters, digits and . _ -, with a letter or digit as the first",
    "research",
)
Label = Annotated[str, WORD]
EnvName = Annotated[
    str,
    Text(
        r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        "a name of letters, digits and _, with a letter or _ as the first",
        "HF_TOKEN",
    ),
]
SET_BY_RUNNER = {
    **dict.fromkeys(("MASTER_ADDR", "NNODES", "NODE_RANK"), "it is the node's own"),
    **dict.fromkeys(("NPROC_PER_NODE", "RANK", "LOCAL_RANK", "WORLD_SIZE"), "it is set for each process"),
    **dict.fromkeys(
        (
            "TRN_AGAIN",
            "TRN_ARRAY_COUNT",
            "TRN_ARRAY_INDEX",
            "TRN_CHECKPOINTS",
            "TRN_JOB_ID",
            "TRN_PROGRESS",
        ),
        "it is the job's own",
    ),
    **dict.fromkeys(("PATH", "PYTHONHOME", "VIRTUAL_ENV"), "the job's packages set it"),
}
"""Variables that the runner sets, and why: a program would not find its own value."""
AbsolutePath = Annotated[
    str, Text(r"^/[^\x00\n]*$", "a path on the cluster, which begins with a slash", "/efs/model", max_length=1024)
]
Image = Annotated[
    str,
    Text(
        r"^[a-z0-9][a-z0-9._:/-]*(:[A-Za-z0-9_.-]{1,128})?(@sha256:[0-9a-f]{64})?$",
        "the name of a container image",
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:1",
    ),
]
ADDRESS = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\x00\n]*)?"
"""Regular expression of an address in S3."""
Data = Annotated[
    str,
    Text(
        rf"^(/[^\x00\n]*|{ADDRESS})$",
        "a directory on the cluster (/efs/...) or an address in S3",
        "s3://my-bucket/data",
    ),
]
JobId = Annotated[
    str,
    Text(
        r"^[A-Za-z0-9][A-Za-z0-9.-]{0,89}(/[0-9]{1,3})?$",
        "the id of a job, as trn list prints it",
        "bert-large-3f2a",
    ),
]
Source = Annotated[
    str,
    Text(
        rf"^(/[^\x00\n]{{1,1000}}|[a-z0-9][a-z0-9.-]{{0,89}}(/[0-9]{{1,3}})?|{ADDRESS})$",
        "a folder on the cluster, an address in S3, or the id of a job, as trn list prints it",
        "/efs/run7",
    ),
]
"""Checkpoints from which a job continues."""
Override = Annotated[
    str,
    Text(
        r"^[a-z][a-z0-9_.-]*(=[^\x00\n]*)?$",
        "KEY=VALUE, or KEY alone, with a key of small letters, digits and . _ -",
        "training.seq_len=4096",
        max_length=1000,
    ),
]
"""An option of a kind's program: KEY=VALUE, or KEY alone."""


def _possible_array(array: str) -> str:
    if reason := array_problem(array):
        raise wrong(f"array is {shown(array)}: {reason}")
    return array


Array = Annotated[
    str,
    Text(
        f"^{ARRAY_PATTERN}$",
        f"indices from 0 to {MAX_MEMBERS - 1}: 0-99, or 0-99%8 (at most 8 at a time)",
        "1,3,10-20:2",
    ),
    AfterValidator(_possible_array),
]

_WHOLE = "a job has its nodes to itself"
_LOG = "trn logs prints it"
_ITSELF = "trn calls sbatch, and reads its answer"
_SET = {
    "account": "write --account", "array": "write --array", "constraint": "write --compute-resource or --instance-type",
    "job-name": "write --name", "nodes": "write --nodes", "partition": "write --queue", "qos": "write --qos", "time": "write --time-limit",
    "ntasks-per-node": "write --tasks-per-node", "ntasks": "write --nodes and --tasks-per-node", "no-requeue": "write --restarts 0",
    "requeue": "trn requeues a job whose node fails", "comment": "trn knows its jobs by it", "exclusive": _WHOLE, "oversubscribe": _WHOLE,
    "overcommit": _WHOLE, "mem": _WHOLE, "mem-per-cpu": _WHOLE, "mem-per-gpu": _WHOLE, "output": _LOG, "error": _LOG, "open-mode": _LOG,
    "input": "a job has no input", "chdir": "--workdir sends the folder", "export": "--env sets variables", "export-file": "--env sets variables",
    "get-user-env": "--env sets variables", "wrap": "a job's program is its script", "hold": "trn begins a job when all its stages are known",
    "kill-on-invalid-dep": "trn cancels a stage that can no longer begin", "signal": "a program gets SIGTERM, and time to save its state",
    "batch": "the nodes of a job are alike", "clusters": "write --cluster", "wait": "trn status --wait waits for a job", "uid": "trn submits as the jobs' user",
    "gid": "trn submits as the jobs' user", "parsable": _ITSELF, "quiet": _ITSELF, "verbose": _ITSELF, "test-only": _ITSELF, "help": _ITSELF,
    "usage": _ITSELF, "version": _ITSELF,
}  # fmt: skip
"""Options that `trn` sets, or that change what it relies on -> why, or what to write instead (sbatch's manual, Slurm 25.11)."""


def may_pass_on(name: str) -> bool:
    """Return whether an option of this name is passed on: `trn` sets none that begins with it. sbatch takes a prefix for the whole."""
    return not any(one.startswith(name) for one in _SET)


def _passed_on(option: str) -> str:
    name = option[2:].partition("=")[0]
    if reason := _SET.get(name):
        _, own, instead = reason.rpartition("write ")
        why = f"but trn sets --{name} itself. Remove it, and use {instead} of trn submit"
        raise wrong(
            f"sbatch is {shown(option)}, {why if own else f'which trn does not pass to sbatch: {reason}. Remove it'}"
        )
    if not may_pass_on(name):
        alike = next(one for one in _SET if one.startswith(name))
        raise wrong(f"sbatch is {shown(option)}, which sbatch may read as --{alike}. Write the option in full")
    return option


SbatchOption = Annotated[
    str,
    Text(
        r"^--[a-z][a-z-]{1,40}(=[^\x00-\x1f\x7f]*)?$",
        "an option in full, --NAME or --NAME=VALUE",
        "--exclude=node-3",
        max_length=1000,
    ),
    AfterValidator(_passed_on),
]
_DIRECTIVE = re.compile(r"#(?P<of>SBATCH|PBS|BSUB|FLUX:)[ \t]+(?P<rest>[^\r\n]*)")
_TAKEN = {
    "nodes": "nodes", "N": "nodes", "time": "time-limit", "t": "time-limit", "job-name": "name", "J": "name", "partition": "queue", "p": "queue",
    "account": "account", "A": "account", "qos": "qos", "q": "qos", "array": "array", "a": "array", "ntasks-per-node": "tasks-per-node",
}  # fmt: skip
"""Options of sbatch -> options of `trn submit` that take the same value (sbatch's manual, Slurm 25.11)."""
_SHORT = {"b": "begin", "d": "dependency", "L": "licenses", "w": "nodelist", "x": "exclude"}
"""Other options of sbatch, by their letters, that `trn submit --sbatch` passes on."""
_NEEDLESS = {
    "exclusive": "a job has its nodes to itself",
    "output": "trn logs prints it", "o": "trn logs prints it", "error": "trn logs prints it", "e": "trn logs prints it",
    "requeue": "trn requeues a job whose node fails", "export": "--env sets variables", "chdir": "--workdir sends the folder",
    "D": "--workdir sends the folder",
}  # fmt: skip


def refused_directives(content: bytes, name: str) -> str:
    """Describe why a script is refused for lines before its first command, and what to write instead; empty for other scripts."""
    lines, taken, needless, unknown = 0, [], [], []
    for text in content.decode(errors="replace").splitlines():
        if text.strip() and not text.startswith("#"):
            break  # sbatch reads no further
        match = _DIRECTIVE.match(text)
        if match is None:
            continue
        lines += 1
        for option, value in _parsed(match["rest"]) if match["of"] == "SBATCH" else []:
            shown = f"{'-' if len(option) == 1 else '--'}{option}"
            if option in _TAKEN:
                taken.append(printed(f"--{_TAKEN[option]}", _as_taken(_TAKEN[option], value)))
            elif option in _NEEDLESS:
                needless.append(f"{shown} is not needed: {_NEEDLESS[option]}")
            elif may_pass_on(_SHORT.get(option, option)) and (len(option) > 1 or option in _SHORT):
                name = _SHORT.get(option, option)
                taken.append(printed("--sbatch", f"--{name}={value}" if value else f"--{name}"))
            else:
                unknown.append(f"trn submit has no option for {shown}")
    if not lines:
        return ""
    if calls_of(name, content):
        taken.append("--launcher batch")
    instead = f", and submit it with {' '.join(dict.fromkeys(taken))}" if taken else ""
    has = f"has {lines} lines of a scheduler" if lines > 1 else "has a line of a scheduler"
    first = f"{has} (#SBATCH or similar), which nothing reads here. Remove {'them' if lines > 1 else 'it'}{instead}"
    return ". ".join([first, *dict.fromkeys([*needless, *unknown])])


def _as_taken(option: str, value: str) -> str:
    """A value of sbatch in the form that `trn submit` takes."""
    if option == "nodes":
        return value.rpartition("-")[2]  # the most of a range
    if option == "name":
        return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    if option == "time-limit":
        days, dash, clock = value.rpartition("-")
        parts = clock.split(":")
        if dash:  # D-HH, D-HH:MM
            return f"{days}-{':'.join([*parts, '00', '00'][:3])}"
        return f"00:{clock}" if len(parts) == 2 else value  # MM:SS
    return value


def _parsed(text: str) -> list[tuple[str, str]]:
    """The options of a line and their values; what follows a # is a comment."""
    options: list[tuple[str, str]] = []
    for word in split(text):
        if word.startswith("--"):
            option, _, value = word[2:].partition("=")
            options.append((option, value))
        elif word.startswith("-") and len(word) > 1:
            options.append((word[1], word[2:].removeprefix("=")))
        elif options and not options[-1][1]:
            options[-1] = (options[-1][0], word)
    return options


_RENAME = " Rename the file, or copy it, to a name of at most 100 letters, digits and . _ + -, with a letter, a digit or _ as the first"


def _copied(address: str) -> str:
    """How to get what is in S3 to a cluster."""
    target = f"/efs/{PurePosixPath(address).name}"
    return f" Copy it: {printed('trn', 'cp', address, f'cluster:{target}')}. Then give {target}"


def describe_errors(error: ValidationError, kind: type[BaseModel]) -> str:
    """What is wrong with the fields of a job of a kind, and what to write instead, in sentences."""
    sentences = []
    for found in error.errors():
        if found["type"] == "trn":
            sentences.append(str(found["ctx"]["message"]))
            continue
        key = str(found["loc"][0]) if found["loc"] else "job"
        fix = found["ctx"]["fix"] if found["type"] == MISMATCH else fix_of(kind, key)
        fix = f" Write {fix}" if fix else ""
        if key == "filename":
            key, fix = "the script's filename", _RENAME
        if found["type"] == "extra_forbidden":
            sentences.append(f"a {error.title} job has no {key}. Remove it")
        elif found["type"] == "missing":
            sentences.append(f"{key} is not given.{fix}")
        else:
            reason = found["msg"][0].lower() + found["msg"][1:]
            if found["type"] == MISMATCH:
                reason = "not in the right format"
                if "on the cluster" in fix and str(found["input"]).startswith("s3://"):
                    reason, fix = "it is read from the cluster, not from S3", _copied(found["input"])
            elif meant := similar(str(found["input"]).lower(), re.findall("'([^']+)'", found["msg"]), 0.8):
                fix = f" Write {meant}"
            sentences.append(f"{key} is {shown(found['input'])}: {reason}.{fix}")
    return " ".join(s.removesuffix(".") + "." for s in sentences).removesuffix(".")
