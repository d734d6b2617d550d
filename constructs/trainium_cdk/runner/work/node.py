"""One process of a stage on Slurm, started by srun: `runner node JOB STAGE`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from typing import Any

from .. import layout, records
from ..errors import ReportedError, place_of
from ..files import read_json
from ..spec import JobSpec, SpecError, StageSpec
from .launch import REFUSED, TERMINATED_CODE, failure_of, launch, record_failure
from .output import Output, say
from .places import StageNode
from .process import ORDERED, TERMINATED, CannotStart, Ended

COLLECTIVES_PORT = 48_620
"""A port of Neuron's collectives: no outgoing connection may use it."""
AGAIN_HERE = "TRN_AGAIN"
"""Variable: how often a batch script has started its stage again, on the same nodes."""
_OF_SRUN = ("SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "SLURM_LABELIO")
"""Variables of this step that a program's own srun would take for its options: CPUs of this step, and a number before each line."""
_RESERVED = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")


def main(folder: str, name: str) -> None:
    os.umask(0o022)
    try:
        job = read_job(Path(folder))
        stage = stage_of(job, name)
        if not stage.batch:  # the program's own srun shares what this step holds (srun's manual, Slurm 20.11 and newer)
            os.environ["SLURM_OVERLAP"] = "1"
            for variable in _OF_SRUN:
                os.environ.pop(variable, None)
        code = run_node(job, stage, node_of(Path(folder), job, stage))
    except (OSError, ReportedError) as e:
        say(describe(e))
        code = 1
    sys.exit(code)


def run_node(job: JobSpec, stage: StageSpec, node: StageNode) -> int:
    """Run a stage's program on this node. Returns the exit code for srun, which ends all other nodes if it is not 0."""
    task = int(os.environ.get("SLURM_PROCID", "0"))
    output = Output(node.job / "logs" / f"{stage.name}.{node.number}.log")
    records.mark(node.job, stage.name, node.run, "begun", task)
    if stage.program:
        _reserve_port(output)
    try:
        ended = launch(
            node, job, stage, read_variables(node.root), output, copies={0: _ranks(stage)}, passes_on=False, task=task
        )
    except CannotStart as e:
        output.say(str(e))
        record_failure(node, stage, records.Failure(node.number, REFUSED, str(e)))
        return REFUSED
    return _record(node, stage, ended, task)


def node_of(root: Path, job: JobSpec, stage: StageSpec) -> StageNode:
    """This node of a stage, by Slurm's variables and the variables of `stage`."""
    env = os.environ
    index = index_of(job, stage)
    return StageNode(
        root=root,
        job=root / index if index else root,
        number=int(env.get("SLURM_NODEID", "0")),
        nodes=int(env.get("SLURM_JOB_NUM_NODES", "1")),
        host=env.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        master=env.get("MASTER_ADDR", ""),
        run=this_run(),
        index=index,
        checkpoint=env.get("TRN_CHECKPOINT", ""),
    )


def this_run() -> str:
    """The name of this run of a stage: of its Slurm job, how often Slurm has started it again, and how often its batch script has since."""
    again = os.environ.get(AGAIN_HERE, "")
    return f"{os.environ['SLURM_JOB_ID']}-{os.environ.get('SLURM_RESTART_COUNT') or 0}{again and f'-{again}'}"


def index_of(job: JobSpec, stage: StageSpec) -> str:
    """The index of this member of an array; empty if it is none."""
    return os.environ.get("SLURM_ARRAY_TASK_ID", "") if job.array and stage.name == "train" else ""


def read_job(root: Path) -> JobSpec:
    """A job's record.

    Raises:
        ReportedError: there is none, or it is damaged.
    """
    try:
        return layout.read_job(root)
    except SpecError as e:
        raise ReportedError(
            f"the record of the job, {root / 'job.json'}, is damaged: {e}. Submit the job again"
        ) from None


def read_variables(root: Path) -> Mapping[str, str]:
    """The job's own variables."""
    found: Any = read_json(root / "env.json")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def stage_of(job: JobSpec, name: str) -> StageSpec:
    found = next((one for one in job.stages if one.name == name), None)
    if found is None:
        raise ReportedError(f"{job.id} has no stage {name}")
    return found


def describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError):
        return f"{error.filename or 'the job'}: {error.strerror or error}"
    return (
        str(error)
        if isinstance(error, ReportedError)
        else f"the runner failed, which is a fault of it: {place_of(error)}"
    )


def _record(node: StageNode, stage: StageSpec, ended: Ended, task: int) -> int:
    if ended.why == ORDERED:  # the batch script knows why; another code would end the other nodes, which may still save
        return 0
    if ended.code == -SIGTERM:  # Slurm's own reached the program first
        ended = replace(ended, why=TERMINATED)
    failure = failure_of(ended, node, stage, task if _ranks(stage) else None)
    if failure.stopped:
        if failure.said.lines:
            record_failure(node, stage, failure)
        return TERMINATED_CODE
    if ended.code:
        record_failure(node, stage, failure)
        return failure.code
    try:
        if ended.found:
            records.mark(node.job, stage.name, node.run, "uncompiled", task)
        # srun may return 0 although this node fails: a success is what is recorded
        records.mark(node.job, stage.name, node.run, "done", task)
    except OSError as e:
        say(f"its success cannot be recorded: {describe(e)}")
        record_failure(node, stage, records.Failure(node.number, 1, f"its success cannot be recorded: {describe(e)}"))
        return 1
    return 0


def _ranks(stage: StageSpec) -> dict[str, str]:
    """Return the ranks of a process, as srun has numbered it; empty if it has none."""
    names = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}
    return {name: os.environ[of] for name, of in names.items()} if stage.has_ranks else {}


def _reserve_port(output: Output) -> None:
    """The bootstrap of the node does so; your own image may lack that."""
    try:
        ports = _RESERVED.read_text()
    except OSError:
        ports = ""
    if _has(ports, COLLECTIVES_PORT):
        return
    words = ["sudo", "-n", "sysctl", "-q", "-w", f"net.ipv4.ip_local_reserved_ports={COLLECTIVES_PORT}"]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        done = 1
    if done:
        output.say(f"port {COLLECTIVES_PORT} could not be reserved")


def _has(ports: str, port: int) -> bool:
    """Return whether a list such as `8080,48600-48700` has a port.

    >>> _has("8080,48620", 48620), _has("48600-48700", 48620), _has("148620", 48620), _has("", 48620)
    (True, True, False, False)
    """
    for part in ports.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and int(first) <= port <= int(last or first):
            return True
    return False
