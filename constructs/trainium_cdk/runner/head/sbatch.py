"""What sbatch gets for a stage: its options as words, and the batch script, which starts this program."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..slurm import comment
from ..spec import Job, Stage

GRACE_SECONDS = 900
"""After which the first of several stages begins if Slurm forgets, in a crash of its controller, that it may begin at once."""
_SHARED = ("begin", "dependency")
"""Options that the user and we give."""


def options(job: Job, stage: Stage, folder: Path, *, chained: bool, after: str = "", nodes: str = "") -> list[str]:
    """The options of a stage.

    Args:
        folder: the job's.
        chained: whether it is the first of several stages. It begins in some minutes, or as soon as all is recorded, so that no stage can end before
            the next one is submitted. Unlike a held job, it begins even if Slurm forgets that it was released.
        after: what it depends on, as `--dependency` has it.
        nodes: on which it must run, as they have compiled.
    """
    assert job.slurm is not None  # noqa: S101  a job of Slurm's
    slurm, prepares = job.slurm, stage.name == "prepare"
    own = [] if prepares else [one for one in slurm.options if _name(one) not in _SHARED]
    begin, dependency = (_value(job, stage, name) for name in _SHARED)
    depends = ",".join(filter(None, (after, dependency)))
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
        *own,
    ]
    if stage.seconds and not prepares:
        words.append(f"--time={_time(stage.seconds)}")
    if job.array and stage.name == "train":
        words.append(f"--array={job.array}")
    if begin or chained:
        words.append(f"--begin={begin or f'now+{GRACE_SECONDS}'}")
    if depends:
        words += [f"--dependency={depends}", "--kill-on-invalid-dep=yes"]
    if nodes:
        words.append(f"--nodelist={nodes}")
    return words


def script(runner: str, folder: Path, stage: str) -> str:
    """The batch script of a stage."""
    words = ("/usr/bin/python3", "-I", runner, "stage", str(folder), stage)
    return f"#!/bin/bash\nexec {' '.join(map(shlex.quote, words))}\n"


def begins_later(job: Job) -> bool:
    """Whether its user has said when it begins."""
    return job.slurm is not None and any(_name(one) == "begin" for one in job.slurm.options)


def _value(job: Job, stage: Stage, name: str) -> str:
    """Of an option that the user and we give: the user's, which the first stage after `prepare` gets."""
    first = next((one for one in job.stages if one.name != "prepare"), None)
    if job.slurm is None or first is None or stage.name != first.name:
        return ""
    return next((one.partition("=")[2] for one in reversed(job.slurm.options) if _name(one) == name), "")


def _name(option: str) -> str:
    """The name of an option, in full where it is one that we give, too: sbatch takes a beginning for the whole."""
    name = option[2:].partition("=")[0]
    return next((one for one in _SHARED if len(name) > 2 and one.startswith(name)), name)


def _time(seconds: int) -> str:
    """Hours, minutes and seconds, as sbatch reads them.

    >>> _time(90), _time(129_600)
    ('0:01:30', '36:00:00')
    """
    return f"{seconds // 3600}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
