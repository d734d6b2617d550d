"""What ends by a signal, and not by its program, on a real Slurm."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from sandbox.processes import with_environment
from sandbox.slurm import LocalSlurm
from tests.jobs.test_slurm import script
from tests.support import until
from trainium_cdk.jobs import SlurmBackend


def processes(number: str, words: str) -> list[int]:
    """Of a Slurm job: those with these words in their command lines."""
    found = []
    for one, _, _ in with_environment(lambda env: env.get("SLURM_JOB_ID") == number):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            if words in Path(f"/proc/{one.pid}/cmdline").read_text().replace("\0", " "):
                found.append(one.pid)
    return sorted(found)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("whom", ["the task", "the stage"])
def test_a_signal_is_no_success(whom: str, backend: SlurmBackend, slurm: LocalSlurm, shared: Path) -> None:
    """In a trap of bash's end by a signal, the exit code is that of the command before it."""
    sent = backend.submit(script("exec sleep 3600"))
    state, number = shared / "trn/jobs" / sent.id / "state", sent.stages["train"]
    [program] = until(lambda: processes(number, "sleep 3600"))
    if whom == "the stage":
        slurm.run(["scancel", "--batch", "--signal=USR1", number])
    else:
        found = processes(number, "/node.sh ") or processes(number, " node ")
        shells = [pid for pid in found if "srun" not in Path(f"/proc/{pid}/comm").read_text()]
        # not the lowest number: the kernel starts again at 1
        [node] = [pid for pid in shells if parent(pid) not in shells]
        os.kill(node, signal.SIGTERM)
        os.kill(program, signal.SIGKILL)
    ended = backend.wait(sent.id, 600)
    assert (ended.state, ended.current.exit_code) == ("FAILED", 143)
    assert not [*state.glob("train.task.*"), *state.glob("train.*.done")]


def test_a_program_that_is_told_to_end_may_save_its_state(backend: SlurmBackend, shared: Path) -> None:
    """For as long as Slurm's KillWait; what it says then is in its node's log."""
    sent = backend.submit(script("trap 'sleep 2; echo has saved; exit 1' TERM; echo began; sleep 3600 & wait"))
    log = shared / "trn/jobs" / sent.id / "logs/train.0.log"
    assert until(lambda: log.exists() and "began" in log.read_text())
    assert backend.cancel(sent.id).state == "CANCELLED"
    assert until(lambda: "has saved" in log.read_text())
