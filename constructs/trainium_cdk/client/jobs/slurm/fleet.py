"""The compute fleet of a ParallelCluster cluster: its status, stopping and starting it, with the scripts that ParallelCluster has on
the head node (`get-compute-fleet-status.sh` and `update-compute-fleet-status.sh`, aws-parallelcluster-cookbook, 2026-11-24)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainium_cdk.errors import TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.slurm.backend import SlurmBackend

Wanted = Literal["STOPPED", "RUNNING"]
_REQUEST = {"STOPPED": "STOP_REQUESTED", "RUNNING": "START_REQUESTED"}
_ON_THE_WAY = {"STOPPED": {"STOP_REQUESTED", "STOPPING"}, "RUNNING": {"START_REQUESTED", "STARTING"}}
# as root: only root may use the head node's credentials
_RUN = """tool() {
  local there; there=$(command -v "$1" || echo "/usr/local/bin/$1"); shift
  if [ "$(id -u)" = 0 ]; then "$there" "$@"; else sudo -n "$there" "$@"; fi
}"""


@dataclass(frozen=True)
class FleetStatus:
    """Attributes:
    status: RUNNING, STOPPED, PROTECTED (stopped by ParallelCluster after nodes that failed to start), or a state between them.
    since: time of the last change, ISO 8601; empty if unknown.
    """

    status: str
    since: str = ""


def status(backend: SlurmBackend) -> FleetStatus:
    """The fleet's status.

    Raises:
        TrnError: the head node's response cannot be read.
        TransportError: it cannot be reached, or this is a shell on it whose user may not use sudo.
    """
    out = backend.run_as_root(f"{_RUN}\ntool get-compute-fleet-status.sh")
    try:
        found = json.loads(out.strip().splitlines()[-1])
        return FleetStatus(str(found["status"]), str(found.get("lastStatusUpdatedTime", "")))
    except (ValueError, IndexError, KeyError, TypeError):
        raise TrnError(f"the head node's response is not a fleet status: {out[:200]!r}") from None


def change(backend: SlurmBackend, wanted: Wanted, *, force: bool = False) -> FleetStatus:
    """Request that the fleet is stopped or started. Returns the status before; nothing is requested if it is as wanted.

    Args:
        force: stop also if jobs run or wait. ParallelCluster ends their nodes; Slurm starts them again when the fleet runs, except what
            `srun` and `salloc` started.

    Raises:
        TrnError: jobs run or wait.
        TransportError: see `status`.
    """
    before = status(backend)
    if before.status == wanted or before.status in _ON_THE_WAY[wanted]:
        return before
    if wanted == "STOPPED" and not force:
        others = backend.others()
        jobs = [job.id for job in backend.active()] + [f"{other.name} of {other.user}" for other in others]
        if jobs:
            names = ", ".join(jobs[:5]) + (", ..." if len(jobs) > 5 else "")
            but = ". Jobs of sbatch start from their beginning, and jobs of srun and salloc are lost" if others else ""
            raise TrnError(
                f"{counted(len(jobs), 'job runs or waits', 'jobs run or wait')} ({names}), and stopping the fleet ends their nodes. Wait for them, cancel them, or give --force: "
                f"they start again, from their last checkpoint, when the fleet runs{but}"
            )
    backend.run_as_root(f"{_RUN}\ntool update-compute-fleet-status.sh --status {_REQUEST[wanted]}")
    return before


def wait(backend: SlurmBackend, wanted: Wanted, say: Callable[[str], None], *, timeout: float | None = None) -> None:
    """Wait until the fleet is stopped or running; `say` is called with each status.

    Raises:
        TrnError: it is PROTECTED, or not as wanted within `timeout` seconds.
    """
    end = None if timeout is None else time.monotonic() + timeout
    last = ""
    while True:
        now = status(backend).status
        if now != last:
            say(f"the fleet is {now}")
            last = now
        if now == wanted:
            return
        if now == "PROTECTED":
            raise TrnError(
                f"ParallelCluster has stopped the fleet: nodes failed to start. `trn why {backend.cluster.stack}` has the reason"
            )
        if end is not None and time.monotonic() > end:
            raise TrnError(f"the fleet is {now}, not {wanted}, after {timeout:.0f} s. ParallelCluster continues")
        backend.sleep(backend.interval)
