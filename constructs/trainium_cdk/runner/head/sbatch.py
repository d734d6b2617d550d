"""The input of sbatch for a Slurm job: its options as words, and the batch script, which starts this program.

A job is at most two jobs of Slurm's: `prepare`, and one for all other stages, which run one after the other in its allocation. Its name has the last one.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ..slurm import comment
from ..spec import JobSpec, StageSpec

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


def options(
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


def script(runner: str, folder: Path, stages: Sequence[StageSpec]) -> str:
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
