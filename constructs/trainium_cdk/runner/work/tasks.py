"""The processes of a stage: started with srun, or the one without it; again if none has begun, until each has recorded its success. With it, what its batch
script sees meanwhile: signals, and the nodes as Slurm's controller knows them, which may be away for a while, or have forgotten the stage in a crash."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import records, slurm
from ..errors import Later, Refused
from .judge import Judge
from .process import say

STARTS = 3
"""How often srun is tried."""
NFS_SECONDS = 60
"""Within which a node sees what others have written."""
KNOWN_SECONDS = 120
"""Within which a controller that was started again knows an allocation."""
_END_SECONDS = 900


@dataclass
class Tasks:
    """The processes of a stage.

    Attributes:
        job: the job's own folder.
        nodes: Slurm's list of them.
        judge: of the stage.
        forgotten: whether Slurm's controller has forgotten this run of the stage.
    """

    job: Path
    stage: str
    run: str
    number: int
    nodes: str
    signals: Signals
    judge: Judge
    forgotten: bool = False

    def start(self, by: Sequence[str], words: Sequence[str], variables: Mapping[str, str]) -> int:
        """Start them by these words, of srun, or the one without, and wait. Returns 0 if all have succeeded, or have carried out an order.

        Raises:
            Stopped: by a signal.
        """
        for left in reversed(range(STARTS)):
            code = self._run([*by, *words], variables)
            if self.judge.order:
                return code
            if code == 0 or code > 128 or not left or not self._may_start_again():
                break
        if code == 0 and not self._within(NFS_SECONDS, lambda: self.are_done):
            say(
                f"only {self._count('done')} of {self.number} tasks have recorded in {self.job}/state that they succeeded, though srun reports no "
                "error: a node has failed, or could not write there"
            )
            return 1
        return code

    @property
    def are_done(self) -> bool:
        """True if each has recorded its success: what is ordered after that is late."""
        return self._count("done") >= self.number

    def wait_if_a_node_ends(self) -> None:
        """Wait for Slurm if a machine shuts down (a spot interruption): that ends its processes before Slurm knows. Then Slurm ends this script, and
        starts the stage again; it would not start one again that has failed before.

        Raises:
            Stopped: by Slurm.
        """
        if not are_answering(self.nodes):
            wait_for_slurm(self.stage, self.signals)

    def _run(self, words: Sequence[str], variables: Mapping[str, str]) -> int:
        try:
            made = subprocess.Popen(words, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
        except OSError as e:
            say(f"{words[0]} cannot be started: {e.strerror}")
            return 127
        while True:
            try:
                code = made.wait(0.25)
                break
            except subprocess.TimeoutExpired:
                self.judge.look()
                if self.judge.is_overdue:
                    made.kill()
                if self.signals.told not in (0, signal.SIGTERM):  # of SIGTERM, Slurm tells srun itself
                    made.returncode = 0
                    raise Stopped from None
        self.signals.check()
        return code if code >= 0 else 128 - code

    def _may_start_again(self) -> bool:
        """Return whether srun failed before any task began, and the controller knows this allocation. A crash of Slurm's controller makes srun fail
        so. A controller that has forgotten it starts the stage again, and ends this script."""
        if (
            self._count("begun")
            or not are_answering(self.nodes)
            or self._within(NFS_SECONDS, lambda: self._count("begun") > 0)
        ):
            return False
        try:
            show_node(os.environ.get("SLURMD_NODENAME") or self.nodes, self.signals.pause)
        except Later:
            return False
        say(f"no task of {self.stage} began: waiting until Slurm's controller knows this allocation")
        if self._within(KNOWN_SECONDS, lambda: is_known(self.nodes)):
            return True
        self.forgotten = True
        return False

    def _count(self, mark: str) -> int:
        return len(records.marked(self.job, self.stage, self.run, mark))

    def _within(self, tries: int, is_so: Callable[[], bool]) -> bool:
        for left in reversed(range(tries)):
            if is_so():
                return True
            if left:
                self.signals.pause(1)
        return False


def wait_for_slurm(stage: str, signals: Signals) -> None:
    say(f"a node is shutting down: waiting for Slurm to restart {stage}")
    signals.pause(_END_SECONDS)


# --- signals ----------------------------------------------------------------------------------------------------------------------------

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_STEP = 0.25


class Stopped(Exception):
    """The batch script got a signal to end."""


class Signals:
    """The signals that would end this process.

    Attributes:
        told: number of the first of them; 0: none yet. SIGTERM is Slurm's.
    """

    def __init__(self) -> None:
        self.told = 0

    def install(self) -> None:
        for number in _ENDS:
            signal.signal(number, self._note)

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            Stopped: a signal came.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(_STEP, left))
        self.check()

    def check(self) -> None:
        if self.told:
            raise Stopped

    def _note(self, number: int, _: object) -> None:
        self.told = self.told or number


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold signals until the end. None reaches this process or a program that it starts: Slurm sends them to all processes of a job."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- the nodes, as Slurm's controller knows them ----------------------------------------------------------------------------------------

CONTROLLER_SECONDS = 600
"""For which a controller that does not answer, as it is being restarted, is waited for."""
_CONNECT_SECONDS = 10

Pause = Callable[[float], None]


def find_address(nodes: str, pause: Pause) -> str:
    """The address of the first of some nodes: its name need not resolve before every node has booted.

    Raises:
        Later: the controller does not answer.
    """
    first = next(iter(slurm.run("scontrol", "show", "hostnames", nodes).split()), nodes)
    return slurm.field("NodeAddr", show_node(first, pause)) or first


def show_node(name: str, pause: Pause) -> str:
    """Slurm's line about a node.

    Raises:
        Later: the controller does not answer within 10 minutes.
    """
    until = time.monotonic() + CONTROLLER_SECONDS
    while True:
        try:
            return slurm.run("scontrol", "show", "node", name, "--oneliner")
        except (Later, Refused) as e:
            say(f"Slurm's controller does not answer: {str(e)[:300]}")
            if time.monotonic() >= until:
                raise Later(str(e)) from None
        pause(2)


def are_answering(nodes: str) -> bool:
    """Return whether the Slurm daemons of these nodes answer. If not, a machine is about to stop. If the controller does not tell, they do."""
    try:
        usual = re.search(r"^SlurmdPort *= *(\d+)", slurm.run("scontrol", "show", "config"), re.MULTILINE)
        lines = slurm.run("scontrol", "show", "node", nodes, "--oneliner").splitlines()
    except (Later, Refused):
        return True
    for line in lines:
        port = slurm.field("Port", line) or (usual[1] if usual else "")  # it is told only if it is not the usual one
        if not port.isdigit():
            continue
        try:
            socket.create_connection((slurm.field("NodeAddr", line), int(port)), _CONNECT_SECONDS).close()
        except OSError:
            return False
    return True


def is_known(nodes: str) -> bool:
    """Return whether the controller knows that this stage runs on these nodes."""
    try:
        found = _squeue("%j\x1f%T\x1f%N")
    except (Later, Refused):
        return False
    return found == [os.environ["SLURM_JOB_NAME"], "RUNNING", nodes]


def lower_limit(seconds: int) -> None:
    """Let Slurm end this job so many seconds from now, and not later. A shorter limit stays: only an administrator can raise it."""
    number = os.environ["SLURM_JOB_ID"]
    try:
        took, left = slurm.run("squeue", "-h", "-j", number, "-o", "%M %L").split()
        if seconds < (slurm.seconds(left) or 0):
            minutes = -(-((slurm.seconds(took) or 0) + seconds) // 60)
            slurm.run("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")
    except (Later, Refused, ValueError) as e:
        say(f"the time limit still counts compiling: {str(e)[:300]}")


def why_stopped() -> str:
    """Return why Slurm has stopped this stage: it knows, as long as it remembers it."""
    try:
        found = _squeue("%j\x1f%r")
    except Refused as e:
        # the controller crashed before it had saved this job
        return records.LOST if "Invalid job id" in str(e) else records.CANCELLED
    except Later:
        return records.CANCELLED
    if found[0] != os.environ["SLURM_JOB_NAME"]:
        return records.LOST  # and has given its number to another one
    return records.TIMEOUT if found[-1] == "TimeLimit" else records.CANCELLED


def _squeue(fields: str) -> list[str]:
    said = slurm.run("squeue", "-h", "-a", "-t", "all", "-j", os.environ["SLURM_JOB_ID"], "-o", fields)
    return said.strip("\n").split("\x1f")
