"""One stage's program on one node, on every engine: what is checked, started, and recorded of its end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import records, secret_values
from ..errors import Refused
from ..prepare import compiled
from ..readers.ending import why_it_ended
from ..spec import JobSpec, NodeEnvironment, Program, StageSpec, Words
from . import events, keep, versions
from .judge import FAULT, Judge
from .output import Output
from .places import StageNode, places, ranks, variables, word
from .process import LIMIT, TERMINATED, CannotStart, Ended, ProgramStart, allow_open_files, run
from .pulse import Watcher

REFUSED, NOT_COMPILED, FAILED, AGAIN, TIMED_OUT, TERMINATED_CODE = 64, 65, FAULT, 75, 124, 143
"""Exit codes. The first three and TIMED_OUT are final; AGAIN: the program failed, but resumes from a checkpoint; TERMINATED_CODE: it got a signal to end."""
COMPILER_FAILED = r"Total failed compilations: [1-9]"
"""What neuron_parallel_compile prints, and ends with 0. Such a graph would be compiled again, and fail again, during training."""


def launch(
    node: StageNode,
    job: JobSpec,
    stage: StageSpec,
    own: Mapping[str, str],
    output: Output,
    *,
    copies: Mapping[int, Mapping[str, str]],
    passes_on: bool,
    seconds: float | None = None,
    secret: Path | None = None,
    task: int = 0,
    judge: Judge | None = None,
) -> Ended:
    """Start a stage's program on this node, and wait for its end.

    Args:
        own: the job's variables.
        copies: the variables of each copy that is started here, by its number on this node.
        secret: where `prepare` finds the job's variables.
        task: number of this process in the stage.
        judge: of all nodes, where this one judges.

    Raises:
        CannotStart: the node, or the job, is not fit for that.
    """
    program = stage.program
    if program is None:
        words = runner("prepare", str(node.root), str(secret or node.root / "env.json"))
        starts: Sequence[ProgramStart] = [ProgramStart(words, str(node.root), dict(os.environ))]
        return run(starts, output, passes_on=passes_on, seconds=seconds)
    try:
        own = secret_values.resolve(own, job.environment.region)
    except Refused as e:
        raise CannotStart(str(e)) from None
    problem = _check_versions(job.environment, own, output)
    allow_open_files(None if node.number else output)  # once for a job
    at = places(node, job, stage, own, problem)
    made = variables(node, job, stage, own, at)
    for folder in (at["cache"], *(word(one, at) for one in program.folders)):
        _make(folder)
    compiled.seed(node.root, Path(at["cache"]))
    words = [word(one, at) for one in _words(program, node)]
    starts = [ProgramStart(words, word(program.folder, at), {**made, **each}) for each in copies.values()]
    look = judge.look if judge else None
    watcher = Watcher(node.job, stage.name, node.run, node.number, task, job.health, output, look)
    looks_for = COMPILER_FAILED if stage.name == "precompile" else ""
    first = node.number == 0 and copies.get(0, {}).get("RANK", "0") == "0"
    finish = None
    with contextlib.ExitStack() as stack:
        if first and stage.name == "train" and output.file:
            stack.enter_context(events.beside(node, output.file, made))
            finish = stack.enter_context(keep.beside(node, job, stage.name, output.file, made))
        ended = run(starts, output, passes_on=passes_on, seconds=seconds, looks_for=looks_for, watcher=watcher)
        if finish and not (ended.why or ended.code):
            finish()
        return ended


def copies_here(node: StageNode, stage: StageSpec) -> dict[int, dict[str, str]]:
    """All copies of a node that this process starts, with the variables of their ranks."""
    if not stage.has_ranks:
        return {0: {}}
    return {local: ranks(node, local, stage.processes) for local in range(stage.processes)}


def record_failure(node: StageNode, stage: StageSpec, failure: records.Failure) -> None:
    """Record why this node failed, if it is the first: that stops the other nodes, whose exit codes mean nothing."""
    records.fail(node.job, stage.name, node.run, failure)


def failure_of(ended: Ended, node: StageNode, stage: StageSpec, rank: int | None = None) -> records.Failure:
    """Return the failure of this node's program.

    Args:
        rank: of the process that failed first, where it is known; else its output may tell it.
    """
    said, code = ended.said, ended.code if ended.code >= 0 else 128 - ended.code
    stopped = ended.why == TERMINATED
    if ended.why == LIMIT:
        last = f"reached its time limit of {stage.seconds} s"
    elif ended.code == 0:
        last = "" if stopped else "graphs failed to compile"
    else:
        last = (
            why_it_ended(said, None if stopped else ended.code, stage.nodes, (), ended.kills)
            or f"exit code {ended.code}"
        )
    if rank is None and said.rank >= 0:
        rank = said.rank
    at = said.at or ended.at or time.time()
    return records.Failure(node.number, code, last, at, rank, said, max(0, ended.kills), stopped)


def runner(*words: str) -> list[str]:
    """The words that start this program again."""
    return [sys.executable, "-I", str(Path(sys.argv[0]).resolve()), *words]


def _words(program: Program, node: StageNode) -> Words:
    return (*program.words, *program.resume) if node.checkpoint else program.words


def _check_versions(environment: NodeEnvironment, own: Mapping[str, str], output: Output) -> str:
    if not environment.rules and not environment.checks:
        return ""
    driver, runtime = versions.find_driver(), versions.find_runtime(own)
    problem = versions.find_problem(environment.rules, driver, runtime)
    if problem and environment.checks == "refuse":
        raise CannotStart(problem)
    if environment.checks:
        output.say(problem or f"Neuron driver {driver}, runtime {runtime}")
    return problem


def _make(folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CannotStart(f"{folder} cannot be made: {e.strerror}") from None
