"""What is known of one stage of a job on Slurm, and times as Slurm prints them."""

import datetime as dt
from typing import NamedTuple, Optional

from .. import slurm
from ..records import State
from .status import Stage


class Known(NamedTuple):
    """What is known of a stage.

    Attributes:
        before: the stage before it.
        row: its row of squeue; None if Slurm does not list it.
        state: what the stage has written.
        account: its row of sacct.
        anothers: whether Slurm has given its number to another job.
        cancelled: whether `trn cancel` was run.
        elsewhere: identity of the cluster it was submitted to, if that is another one.
        inactive: why its queue takes no jobs, if that is the reason.
        full: the shared file system, if no block of it is free.
        down: the nodes of its queue that are down.
        blocks: capacity blocks of its queue that are not active.
        cpu: whether its queue is that of the nodes without Trainium.
    """

    before: Optional[Stage] = None
    row: Optional[slurm.Row] = None
    state: Optional[State] = None
    account: Optional[slurm.Account] = None
    anothers: bool = False
    cancelled: bool = False
    elsewhere: Optional[str] = None
    inactive: str = ""
    full: str = ""
    down: tuple[slurm.Down, ...] = ()
    blocks: tuple[str, ...] = ()
    cpu: bool = False


def moment(text: str) -> Optional[int]:
    """A time as Slurm prints it, in UTC, in seconds since 1970; None for anything else."""
    try:
        return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.timezone.utc).timestamp())
    except (ValueError, OverflowError):
        return None


def clock(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.timezone.utc):%H:%M} UTC"
