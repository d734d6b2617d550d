"""One stage's program on one node, on every engine: what is checked, started, and recorded of its end. On Slurm, the process that srun starts for that:
`runner node JOB STAGE`."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from typing import Any

from .. import aws, layout, records
from ..errors import Refused, ReportedError, place_of
from ..files import read_json
from ..prepare import compiled
from ..readers.ending import why_it_ended
from ..spec import JobSpec, NodeEnvironment, Program, Rule, SpecError, StageSpec, Words
from . import events, keep
from .judge import FAULT, Judge
from .places import StageNode, places, ranks, variables, word
from .process import LIMIT, ORDERED, TERMINATED, CannotStart, Ended, Output, ProgramStart, allow_open_files, run, say
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
        own = aws.secret_values(own, job.environment.region)
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
    driver, runtime = find_driver(), find_runtime(own)
    problem = find_problem(environment.rules, driver, runtime)
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


# --- driver and runtime: with others than those that the rules of the job allow, programs fail late without a reason --------------------

PACKAGE = "aws-neuronx-runtime-lib"
_VERSION = re.compile(r"[0-9][0-9.]{0,40}")
_ASK = (("dpkg-query", "-W", "-f", "${Version}\\n", PACKAGE), ("rpm", "-q", "--qf", "%{VERSION}\\n", PACKAGE))


def find_driver() -> str:
    """The version of the driver that is loaded; `modinfo` may find another one. Empty if none is."""
    try:
        said = Path(os.environ.get("TRN_SYS_ROOT", "") + "/sys/module/neuron/version").read_text(errors="replace")
    except OSError:
        return ""
    return _version(said)


def find_runtime(own: Mapping[str, str]) -> str:
    """The version of the runtime that is installed; empty if it is not known. `own`: the job's variables."""
    env = {**os.environ, **own}
    for words in _ASK:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", env=env, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return _version(done.stdout)
    return ""


def find_problem(rules: Sequence[Rule], driver: str, runtime: str) -> str:
    """Describe why driver and runtime do not work together, and what to do; empty if they do, or nothing is known of the runtime.

    >>> rule = Rule(("2.29", ""), ("", "2.33"), "use another image")
    >>> find_problem([rule], "2.29.0.0", "2.30.51.0")
    'driver 2.29.0.0 and runtime 2.30.51.0 are not compatible: use another image'
    >>> find_problem([rule], "2.28.9", "2.30.51.0"), find_problem([rule], "2.29", "2.33"), find_problem([rule], "2.29", "")
    ('', '', '')
    """
    if not driver:
        return "the Neuron driver is not loaded (there is no /sys/module/neuron/version). See dmesg on the node"
    if not runtime:
        return ""
    for rule in rules:
        if _is_within(driver, rule.driver) and _is_within(runtime, rule.runtime):
            return f"driver {driver} and runtime {runtime} are not compatible: {rule.words}"
    return ""


def _version(text: str) -> str:
    return next((found[0] for line in text.splitlines() if (found := _VERSION.match(line))), "")


def _is_within(version: str, bounds: Sequence[str]) -> bool:
    first, before = bounds
    return (not first or _numbers(version) >= _numbers(first)) and (not before or _numbers(version) < _numbers(before))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


# --- on Slurm ---------------------------------------------------------------------------------------------------------------------------

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
