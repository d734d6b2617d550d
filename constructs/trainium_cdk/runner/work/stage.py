"""The batch script of a Slurm job: `runner stage JOB STAGE...`, on the first of its nodes. Its stages run one after the other, in one allocation."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGTERM

from .. import blocks, files, layout, records, slurm, slurm_nodes
from ..errors import Later, Refused, ReportedError
from ..readers import Finding
from ..records import State
from ..spec import JobSpec, StageSpec
from . import health, tasks
from .health import Order
from .judge import Judge
from .node import (
    AGAIN_HERE,
    FAILED,
    NOT_COMPILED,
    TERMINATED_CODE,
    describe,
    index_of,
    read_job,
    runner,
    stage_of,
    this_run,
)
from .places import find_checkpoint
from .process import output_to, say, show
from .tasks import NFS_SECONDS, Signals, Stopped, Tasks, held, wait_for_slurm

_END_SECONDS = 900


def main(folder: str, *names: str) -> None:
    os.umask(0o022)
    signals = Signals()
    try:
        code = run_stages(Path(folder), names, signals)
    except Stopped:
        code = TERMINATED_CODE
    except (OSError, ReportedError) as e:
        say(describe(e))
        code = 1
    sys.exit(code)


def run_stages(root: Path, names: Sequence[str], signals: Signals) -> int:
    """Run the stages of a Slurm job, one after the other, until one fails. Returns its exit code.

    Raises:
        OSError: the shared file system is full, or gone, before it has begun.
        ReportedError: they are not stages of a job.
    """
    number = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"]
    *first, last = names
    if not belongs(root, last, number):
        say(
            f"Slurm job {os.environ['SLURM_JOB_ID']} is not a stage of this job: its submission was interrupted. Nothing was run"
        )
        return 1
    job = read_job(root)
    if last != "prepare" and not _is_prepared(root):
        say("prepare has not completed; Slurm's controller crashed and forgot that this waits for it. Nothing was run")
        return 1
    index = index_of(job, stage_of(job, last))
    own = layout.lay_out_member(root, index) if index else root
    before = records.state(own, last)
    if before and before.completed and before.number == number:
        say(f"{last} has already completed; Slurm's controller crashed and forgot that")
        return 0
    if not (root / "env.json").exists():
        say("the job had ended, and its variables were deleted: they may be secrets. Submit it again with a new token")
        return 1
    for name in first:
        with output_to(own / "logs" / f"{name}.log"):
            if code := RunningStage(root, own, job, stage_of(job, name), number, signals).run_once():
                return code
    batch = RunningStage(root, own, job, stage_of(job, last), number, signals)
    batch.begin()
    if first and batch.stage.seconds:
        tasks.lower_limit(batch.stage.seconds)
    return batch.end(batch.carry_out())


def _is_prepared(root: Path) -> bool:
    """Return whether the stage `prepare` has completed, or the job needs none."""
    made = records.submitted(root)
    number = made.numbers.get("prepare") if made else None
    for left in reversed(range(NFS_SECONDS if number else 0)):
        files.refresh(root, root / "state")
        state = records.state(root, "prepare")
        if state and state.number == number and state.state == records.ENDED:
            return state.completed
        if left:
            time.sleep(1)
    return not number


def belongs(root: Path, name: str, number: str) -> bool:
    """Return whether a submission has recorded this Slurm job, as it does once Slurm has it. An interrupted submission leaves other ones."""
    left = NFS_SECONDS
    while left:
        files.refresh(root)
        found = records.submitted(root)
        recorded = found.numbers.get(name, "") if found else ""
        if recorded == number:
            return True
        # an older number may still be replaced by this one
        left = min(left, 4 if recorded.isdecimal() and int(recorded) > int(number) else left) - 1
        if left:
            time.sleep(1)
    return False


@dataclass
class RunningStage:
    """A stage that runs.

    Attributes:
        root: the job's folder; of a member of an array, the array's.
        own: the job's own folder.
        number: of its Slurm job, as sbatch printed it.
    """

    root: Path
    own: Path
    job: JobSpec
    stage: StageSpec
    number: str
    signals: Signals
    run: str = field(default_factory=this_run)
    nodes: str = field(default_factory=lambda: os.environ["SLURM_JOB_NODELIST"])
    forgotten: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    order: Order | None = None
    again: int = 0

    def begin(self) -> None:
        """Record that it runs. From now on a signal is noted."""
        records.write_state(self.own, self.stage.name, self._state(records.RUNNING))
        records.forget(self.own, self.stage.name)
        self.signals.install()
        if int(os.environ.get("SLURM_RESTART_COUNT") or 0):
            self._comment(())  # of the attempt before
        self.sizes = log_sizes(self.own, self.stage.name)

    def run_once(self) -> int:
        """Run a stage, unless it has completed on the same nodes: each node has its own compile cache. Returns its exit code."""
        before = records.state(self.own, self.stage.name)
        if before and before.completed and before.nodes == self.nodes:
            if before.number != self.number:
                records.write_state(self.own, self.stage.name, replace(before, number=self.number))
            return 0
        if self._is_started_too_often():  # the last stage says so
            return 0
        self.begin()
        code = self.end(self.carry_out())
        os.environ.pop(AGAIN_HERE, None)
        return code

    def carry_out(self) -> int:
        """The exit code of what it does. It does not raise."""
        try:
            return self._carry_out()
        except Stopped:
            return TERMINATED_CODE
        except Exception as e:  # its end is recorded all the same
            say(describe(e))
            return 1

    def end(self, code: int) -> int:
        """Record how it ended; returns the exit code. A disk that is full now fails no job."""
        name, why, node = self.stage.name, "", None
        failed = records.failure(self.own, name, self.run)
        failed = None if failed and failed.stopped else failed
        if code > 128 and not self.signals.told and failed is None:
            self._wait_for_a_signal()  # a stop of the stage may reach srun first
        if code and self.signals.told == SIGTERM:
            self._wait_if_this_node_ends()
            why = tasks.why_stopped()
        elif code and self.forgotten:
            why = records.LOST
        elif code and failed:
            code, node = failed.code, failed.node if failed.node >= 0 else None
        try:
            records.write_state(self.own, name, self._state(records.ENDED, code, why, node))
            if self._is_final(code, why):
                layout.forget_variables(self.root)
        except OSError as e:
            say(f"its end cannot be recorded: {describe(e)}")
        return code

    def _is_final(self, code: int, why: str) -> bool:
        """Return whether nothing starts the job again, with this end of a stage; False if that is not known. Slurm does so after its own signal, and
        it may be set to do so after a failure (https://slurm.schedmd.com/slurm.conf.html#OPT_RequeueExit)."""
        stopped = (code == TERMINATED_CODE or why) and why != records.TIMEOUT
        if stopped or (code == 0 and self.stage.name != "train"):
            return False
        with contextlib.suppress(Later, Refused):
            if code and re.search(r"^RequeueExit\w* *= *[^(\s]", slurm.run("scontrol", "show", "config"), re.MULTILINE):
                return False
            number, own = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
            return not number or [row.index for row in slurm.rows(numbers=[number], members=True)] == [own]
        return False

    def _carry_out(self) -> int:
        self.signals.check()
        env, name = os.environ, self.stage.name
        if records.is_cancelled(self.own) or records.is_cancelled(self.root):
            say("this job was cancelled; Slurm's controller crashed and forgot that")
            with contextlib.suppress(Later, Refused):
                slurm.run("scancel", f"--name={env['SLURM_JOB_NAME']}", env["SLURM_JOB_ID"])
                self.signals.pause(900)
            return TERMINATED_CODE
        self._say_begin()
        if name != "prepare" and self._is_started_too_often():
            most = self.job.slurm.restarts if self.job.slurm else None
            say(f"restarted {most} times already, the most that --restarts allows")
            return 1
        if name == "prepare":
            return self._launch({}, "--nodes=1", "--ntasks=1")
        if self._leave_block():
            self._move()
        address = tasks.find_address(self.nodes, self.signals.pause)
        code = self._launch({"MASTER_ADDR": address, **self._checkpoint()}, "--label", "--kill-on-bad-exit=1")
        while self.order and self.order.do == health.RESTART:
            self._begin_again(code)
            code = self._launch({"MASTER_ADDR": address, **self._checkpoint()}, "--label", "--kill-on-bad-exit=1")
        if name == "precompile" and code == 0:
            code = self._check_compiled()
        return code

    def _is_started_too_often(self) -> bool:
        most = (self.job.slurm and self.job.slurm.restarts) or 0
        return 0 < most < int(os.environ.get("SLURM_RESTART_COUNT") or 0) - blocks.left(self.own).count

    def _launch(self, variables: dict[str, str], *options: str) -> int:
        """Start the stage once on each node, or more often. It ends as soon as one fails."""
        nodes = 1 if self.stage.name == "prepare" else int(os.environ["SLURM_JOB_NUM_NODES"])
        number = 1 if self.stage.batch else nodes * self.stage.processes
        judge = Judge(self.own, self.job, self.stage, self.run, show, self._comment, self._leave_block)
        tasks = Tasks(self.own, self.stage.name, self.run, number, self.nodes, self.signals, judge)
        if self.stage.processes > 1:
            options = (*options, f"--ntasks={number}", f"--ntasks-per-node={self.stage.processes}")
        by = () if self.stage.batch else ("srun", *options)
        code = tasks.start(by, runner("node", str(self.root), self.stage.name), variables)
        self.forgotten = tasks.forgotten
        if code and judge.order is None and self.stage.name != "prepare":
            self._look_for_a_broken_node(judge)
        self.order = None if code == 0 and tasks.are_done else judge.order
        if self.order and self.order.do == health.MOVE:
            self._move()
        if self.order:
            return code if self.order.do == health.RESTART else FAILED
        if code and number > 1:
            tell_failure(self.own, self.stage.name, self.run, self.sizes)
        if code and self.stage.name != "prepare":
            tasks.wait_if_a_node_ends()
        return code

    def _comment(self, wrong: Sequence[Finding]) -> None:
        """Let Slurm's queue have what is wrong."""
        text = slurm.comment(self.job.id, {one.kind for one in wrong})
        with contextlib.suppress(Later, Refused):
            slurm.run("scontrol", "update", f"JobId={os.environ['SLURM_JOB_ID']}", f"Comment={text}")

    def _look_for_a_broken_node(self, judge: Judge) -> None:
        """A program may fail before root has seen why."""
        failed = records.failure(self.own, self.stage.name, self.run)
        lines = "\n".join((failed.last, *failed.said.lines)) if failed else ""
        looks = 1 + (slurm_nodes.WAIT_SECONDS // 5 if slurm_nodes.looks_broken(lines) else 0)
        for left in reversed(range(looks)):
            if order := judge.leave(slurm_nodes.nodes_now()):
                judge.give(replace(order, at=time.time()))
                break
            if left:
                self.signals.pause(5)

    def _move(self) -> None:
        """Let Slurm start the stage again, on nodes that work.

        Raises:
            Stopped: by Slurm.
        """
        number, block = os.environ["SLURM_JOB_ID"], self._ending_block()
        if block:
            say(f"{block.text}: the stage waits for the next block")
            blocks.leave(self.own, block)
        else:
            say("a node is broken: Slurm starts the stage again, on others")
        with contextlib.suppress(Later, Refused):
            with held():  # Slurm ends this script at the first, and the second must follow
                slurm.run("scontrol", "requeue", number)
                if block:
                    begin = f"StartTime=now+{max(1, int(block.ends - time.time()))}"
                    with contextlib.suppress(Later, Refused):
                        slurm.run("scontrol", "update", f"JobId={number}", begin)
            self.signals.pause(_END_SECONDS)
        raise Stopped

    def _ending_block(self) -> blocks.Block | None:
        """The capacity block that the stage must leave now."""
        block = None
        if self.job.slurm and not self.job.slurm.past_block_end and self.stage.name != "prepare":
            block = blocks.of_nodes(self.root.parent, self.nodes)
        return block if block and block.is_ending(time.time()) else None

    def _leave_block(self) -> Order | None:
        """The programs save, and Slurm starts the stage again in the next block; with `--restarts 0` it ends."""
        block, never = self._ending_block(), self.job.slurm and self.job.slurm.restarts == 0
        return Order(health.SAVE if never else health.MOVE, block.text) if block else None

    def _begin_again(self, code: int) -> None:
        """Prepare another run on the same nodes. Where a node has not ended its processes, Slurm does, and starts the stage again: never are there
        two copies of it.

        Raises:
            Stopped: by Slurm.
        """
        if code:
            say("a node has not ended its program: Slurm starts the stage again")
            with contextlib.suppress(Later, Refused):
                slurm.run("scontrol", "requeue", os.environ["SLURM_JOB_ID"])
                self.signals.pause(_END_SECONDS)
            raise Stopped
        self.again += 1
        os.environ[AGAIN_HERE] = str(self.again)
        self.run = this_run()
        records.forget(self.own, self.stage.name)
        self.sizes = log_sizes(self.own, self.stage.name)
        self._say_begin()

    def _say_begin(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        say(f"{self.stage.name}: Slurm job {os.environ['SLURM_JOB_ID']} on {self.nodes}, {now}")

    def _checkpoint(self) -> dict[str, str]:
        """The checkpoint from which all nodes continue. It is found once, before any of them starts."""
        found = find_checkpoint(self.job, self.own)
        return {"TRN_CHECKPOINT": found} if found else {}

    def _check_compiled(self) -> int:
        failed = records.marked(self.own, self.stage.name, self.run, "uncompiled")
        if failed:
            say(
                f"graphs failed to compile on {len(failed)} node(s): see {self.own}/logs/{self.stage.name}.*.log, or submit without precompiling"
            )
            return NOT_COMPILED
        return 0

    def _wait_for_a_signal(self) -> None:
        with contextlib.suppress(Stopped):
            self.signals.pause(5)

    def _wait_if_this_node_ends(self) -> None:
        """Wait while this machine shuts down: it ends this script before Slurm knows, which then starts the stage again."""
        host = os.environ.get("SLURMD_NODENAME")
        if host and not tasks.are_answering(host):
            self.signals.told = 0
            with contextlib.suppress(Stopped):
                wait_for_slurm(self.stage.name, self.signals)

    def _state(self, state: str, code: int | None = None, why: str = "", node: int | None = None) -> State:
        attempt = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        return State(state, self.number, attempt, code, time.time(), self.nodes, why, node)


# --- which node failed first: srun ends the others, and may drop the last lines of that one ------------------------------------------------

_SHOWN = 40
_LOOKED_AT = 100  # lines of the stage's own log
_MOST = 1_000_000


def log_sizes(job: Path, stage: str) -> dict[str, int]:
    """The sizes of the logs of a stage's nodes: what they have now is of earlier attempts."""
    found = {}
    with contextlib.suppress(OSError):
        for one in os.scandir(job / "logs"):
            if one.name.startswith(f"{stage}.") and one.is_file(follow_symlinks=False):
                found[one.name] = one.stat(follow_symlinks=False).st_size
    return found


def tell_failure(job: Path, stage: str, run: str, before: dict[str, int]) -> None:
    """Tell which node failed first, with the last lines of its log unless the stage's log has them.

    Args:
        before: `log_sizes` at the beginning of this run.
    """
    failed = records.failure(job, stage, run)
    if failed is None or failed.stopped:
        return
    name = f"{stage}.{failed.node}.log"
    say(f"node {failed.node} failed first; its own log is {job / 'logs' / name}")
    own = _end(job / "logs" / name, before.get(name, 0))
    last = next((line for line in reversed(own[-9:]) if line.strip()), "")
    if any(last in line for line in _end(job / "logs" / f"{stage}.log")[-_LOOKED_AT:]):
        return
    for line in own[-_SHOWN:]:
        show(f"{failed.node}: {line}")


def _end(log: Path, begin: int = 0) -> list[str]:
    """The last lines of a log, none before a byte."""
    with contextlib.suppress(OSError):
        return files.read_end(log, _MOST, begin).decode(errors="replace").splitlines()
    return []
