"""Words of a job. In the programs that kinds start: places, launchers, values as a command line takes them. In what users give: what can be passed
to a program, time limits, and the errors about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from trainium_cdk.runner.spec import Place
from trainium_cdk.runner.spec import Word as Word
from trainium_cdk.runner.spec import Words as Words
from trainium_cdk.text import Text

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
