"""The program of each container of a job on Kubernetes, as its process 1: `runner pod STAGE`.

`jobs/kubernetes/objects.py` says what it finds: TRN_JOB and other variables, `/trn/job/job.json`, `/trn/env/env.json`. Exit codes: `node`, and

    137   its memory was full: another attempt would need as much
    1     the program of `prepare`, or this one, has failed otherwise
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import layout, records
from ..errors import ReportedError
from ..files import read_json, shared_root
from ..spec import JobSpec, SpecError, StageSpec, from_json, to_json
from . import container, health
from .judge import Judge
from .node import (
    AGAIN,
    FAILED,
    NOT_COMPILED,
    REFUSED,
    TERMINATED_CODE,
    TIMED_OUT,
    copies_here,
    describe,
    failure_of,
    launch,
    record_failure,
    stage_of,
)
from .places import StageNode, find_checkpoint, word
from .process import LIMIT, ORDERED, TERMINATED, CannotStart, Ended, Output, memory_kills, say, show

GIVEN = Path("/trn")
_SECRET = GIVEN / "env" / "env.json"
OUT_OF_MEMORY, OTHERWISE = 137, 1
_MESSAGE = Path("/dev/termination-log")
_OTHERS_SECONDS = 90
"""For which one waits for the other nodes, which save or write their stacks."""
_LONGEST_MESSAGE = 4000  # Kubernetes keeps 4,096 bytes


def main(name: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED_CODE))  # process 1 has no default
    os.umask(0o022)
    kills = memory_kills()
    try:
        code = run_container(name)
    except CannotStart as e:
        say(str(e))
        tell(records.Failure(node_number(name), REFUSED, str(e)))
        code = REFUSED
    except (OSError, ReportedError) as e:
        say(describe(e))
        code = OTHERWISE
    if code and memory_kills() > kills:
        say("a program was killed, because the memory of this pod was full")
        told = records.read(records.Failure, _MESSAGE) or records.Failure(node_number(name), OUT_OF_MEMORY, "")
        tell(dataclasses.replace(told, code=OUT_OF_MEMORY, last=records.MEMORY_FULL, kills=max(1, told.kills)))
        code = OUT_OF_MEMORY
    sys.exit(code)


def run_container(name: str) -> int:
    """Run a stage in its container. Returns the exit code.

    Raises:
        CannotStart: nor could another attempt.
        OSError: the shared file system is full, or gone.
    """
    began = time.monotonic()
    job = read_job()
    stage = stage_of(job, name)
    own = read_variables()
    node = lay_out(job, stage)
    check_required(job, node)
    output = Output(node.job / "logs" / f"{stage.name}.{node.number}.log")
    say(begin_line(node, job, stage))
    if stage.name == "prepare":
        records.forget(node.job, stage.name)
    for mark in ("done", "ended"):  # preempted: the same attempt begins again
        records.unmark(node.job, stage.name, node.run, mark, node.number)
    if stage.name == "train" and any(one.name == "precompile" for one in job.stages):
        wait_until_compiled(node)
    node = dataclasses.replace(
        node, checkpoint=find_checkpoint(job, node.job, first=node.number == 0) if stage.program else ""
    )
    seconds = None if stage.seconds is None else stage.seconds - (time.monotonic() - began)
    judges = node.number == 0 and stage.name != "prepare"
    told = container.tell if stage.name == "train" else None
    judge = Judge(node.job, job, stage, node.run, show, told) if judges else None
    try:
        ended = launch(
            node,
            job,
            stage,
            own,
            output,
            copies=copies_here(node, stage),
            passes_on=True,
            seconds=seconds,
            secret=_SECRET,
            task=node.number,
            judge=judge,
        )
    except CannotStart as e:
        record_failure(node, stage, records.Failure(node.number, REFUSED, str(e)))
        raise
    if ended.why == ORDERED:
        return obeyed(node, job, stage, judge.order if judge else None)
    return end(node, stage, ended, output)


def obeyed(node: StageNode, job: JobSpec, stage: StageSpec, order: health.Order | None) -> int:
    """Wait until the other nodes have carried out the order, too: the first pod that fails ends the others. Returns the exit code, as of `end`."""
    with contextlib.suppress(OSError):
        records.mark(node.job, stage.name, node.run, "ended", node.number)
    until = time.monotonic() + _OTHERS_SECONDS + 2 * job.health.every
    while len(records.marked(node.job, stage.name, node.run, "ended")) < node.nodes and time.monotonic() < until:
        time.sleep(0.5)
    order = order or health.order(node.job, stage.name, node.run)
    if order and order.do == health.RESTART:
        tell(records.Failure(-1, AGAIN, order.why))
        return AGAIN
    tell(records.failure(node.job, stage.name, node.run) or records.Failure(-1, FAILED, order.why if order else ""))
    return FAILED


def end(node: StageNode, stage: StageSpec, ended: Ended, output: Output) -> int:
    """Record how a program has ended. Returns the exit code, which tells Kubernetes whether the job may be started again."""
    # JAX lets all processes save, and end, if one of them got a signal: also in pods that stay
    if ended.why == TERMINATED or (stage.spmd and ended.code == TERMINATED_CODE):
        return TERMINATED_CODE
    if not ended.why and not ended.code and not ended.found:
        records.mark(node.job, stage.name, node.run, "done", node.number)
        return 0
    if ended.found and not ended.code:
        output.say("graphs failed to compile: see above, or submit without precompiling")
    rank = node.number * stage.processes + ended.copy if stage.has_ranks else None
    failure = failure_of(ended, node, stage, rank)
    record_failure(node, stage, failure)
    tell(failure, records.failure(node.job, stage.name, node.run))
    return exit_code(stage, ended)


def exit_code(stage: StageSpec, ended: Ended) -> int:
    """Return the exit code of a stage that has failed."""
    if ended.why == LIMIT:
        return TIMED_OUT
    if stage.name == "precompile":
        return NOT_COMPILED
    if stage.name == "prepare":
        return REFUSED if ended.code == REFUSED else OTHERWISE
    return AGAIN if stage.again else FAILED


def lay_out(job: JobSpec, stage: StageSpec) -> StageNode:
    """Make the job's folder on the shared file system, which each of its pods does."""
    env = os.environ
    root = Path(shared_root() + env["TRN_JOB"])
    layout.lay_out(root, dataclasses.replace(job, variables={}))
    index = env.get("TRN_ARRAY_INDEX", "")
    own = layout.lay_out_member(root, index) if index else root
    with contextlib.suppress(OSError):
        Path(env.get("HOME", "/home/trn")).mkdir(parents=True, exist_ok=True)
    number = node_number(stage.name)
    return StageNode(
        root=root,
        job=own,
        number=number,
        nodes=stage.nodes,
        host=f"{env.get('TRN_HOST', '')}node-{number}",
        master=env.get("MASTER_ADDR", ""),
        run="-".join(filter(None, (env.get("TRN_RUN", "")[:40], env.get("TRN_ATTEMPT", "0")))),
        index=index,
    )


def node_number(stage: str) -> int:
    """The number of this pod among its job's."""
    return 0 if stage == "prepare" else int(os.environ.get("JOB_COMPLETION_INDEX", "0"))


def check_required(job: JobSpec, node: StageNode) -> None:
    """Check the paths that a job needs, which nobody can check when it is submitted.

    Raises:
        CannotStart: one is not there.
    """
    at = {"job": str(node.job), "files": str(node.root / "files"), "trn": str(node.trn)}
    for one in job.require:
        if not Path(word(one, {**at, "root": shared_root()})).exists():
            raise CannotStart(f"there is no {word(one, {**at, 'root': ''})} on the cluster. Check the path")


def begin_line(node: StageNode, job: JobSpec, stage: StageSpec) -> str:
    """Return the line of the stage's beginning. `trn logs --rank` reads the ranks."""
    env = os.environ
    ranks = ""
    if stage.name != "prepare":
        each = stage.ranks(job.environment.cores)
        ranks = f" node {node.number} of {node.nodes}, ranks {node.number * each} to {(node.number + 1) * each - 1},"
    where, now = env.get("TRN_NODE", "an unknown node"), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{stage.name}:{ranks} on {where}, attempt {env.get('TRN_ATTEMPT', '0')}, {now}"


def wait_until_compiled(node: StageNode) -> None:
    """Wait until every node has compiled in this attempt: one that trains earlier would wait with all its devices in use, and fail."""
    while len(records.marked(node.job, "precompile", node.run, "done")) < node.nodes:
        time.sleep(1)


def read_job() -> JobSpec:
    """The job that this container is of.

    Raises:
        CannotStart: there is none.
    """
    try:
        return from_json(JobSpec, read_given(GIVEN / "job" / "job.json"), strict=False)
    except SpecError as e:
        raise CannotStart(f"the job that this pod was given is damaged: {e}") from None


def read_variables() -> Mapping[str, str]:
    """The job's own variables, which are on no disk."""
    found: Any = read_given(_SECRET)
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def read_given(path: Path) -> Any:
    """Read a JSON file that Kubernetes mounts: as a link, below folders that it replaces."""
    return read_json(path.resolve())


def tell(failure: records.Failure, first: records.Failure | None = None) -> None:
    """Tell Kubernetes why this container has failed: its termination message, which `trn status` reads.

    Args:
        first: the failure of the job's node that failed first, if that is known.
    """
    with contextlib.suppress(OSError):
        _MESSAGE.write_text(json.dumps(to_json((first or failure).cut(_LONGEST_MESSAGE))))
