"""The processes of a stage: started with srun, or the one without it; again if none has begun, until each has recorded its success."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from .. import records
from ..errors import Later
from . import allocation
from .judge import Judge
from .output import say
from .signals import Signals, Stopped

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
        if not allocation.are_answering(self.nodes):
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
                if self.signals.told not in (0, SIGTERM):  # of SIGTERM, Slurm tells srun itself
                    made.returncode = 0
                    raise Stopped from None
        self.signals.check()
        return code if code >= 0 else 128 - code

    def _may_start_again(self) -> bool:
        """Return whether srun failed before any task began, and the controller knows this allocation. A crash of Slurm's controller makes srun fail
        so. A controller that has forgotten it starts the stage again, and ends this script."""
        if (
            self._count("begun")
            or not allocation.are_answering(self.nodes)
            or self._within(NFS_SECONDS, lambda: self._count("begun") > 0)
        ):
            return False
        try:
            allocation.show_node(os.environ.get("SLURMD_NODENAME") or self.nodes, self.signals.pause)
        except Later:
            return False
        say(f"no task of {self.stage} began: waiting until Slurm's controller knows this allocation")
        if self._within(KNOWN_SECONDS, lambda: allocation.is_known(self.nodes)):
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
