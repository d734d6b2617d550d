"""The capacity blocks of a Slurm cluster, and when each ends.

The client asks EC2, with its user's own rights, and sends what it learns with a submission or a status. Jobs have no right at EC2: they read
`jobs/.blocks.json`. It lies where the user's jobs can write, and a job that writes it changes only when the user's own jobs save.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from . import files, records

_FILE = ".blocks.json"
_MOST = 100


@dataclass(frozen=True)
class Block:
    """A capacity block of a compute resource. The times are in seconds since 1970.

    Attributes:
        queue, resource: the partition, and the compute resource in it.
        saves: when jobs get the signal to save.
        stops: when EC2 begins to end its instances.
        ends: when it ends.
    """

    queue: str
    resource: str
    id: str
    saves: float
    stops: float
    ends: float

    @property
    def text(self) -> str:
        return f"capacity block {self.id} ends at {clock(self.ends)}, its nodes from {clock(self.stops)}"

    def is_ending(self, now: float) -> bool:
        """Return whether no job may run in the block any more. After its end, nodes by these names are of the next block."""
        return self.saves <= now < self.ends


@dataclass(frozen=True)
class Blocks:
    """The record of a user's folder of jobs."""

    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Left:
    """The number of times that a job has left a block before its end, and the last block."""

    count: int = 0
    id: str = ""
    ends: float = 0.0


def clock(seconds: float) -> str:
    """A time for people.

    >>> clock(1795865400)
    '2026-11-28 11:30 UTC'
    """
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M UTC}"


def note(jobs: Path, blocks: Sequence[Block]) -> None:
    """Write down what a client has learnt."""
    jobs.mkdir(parents=True, exist_ok=True)
    files.write_json(jobs / _FILE, dataclasses.asdict(Blocks(tuple(blocks))))


def read(jobs: Path) -> "list[Block]":
    """The blocks of the cluster; none where no client could learn of them."""
    files.refresh(jobs)
    found = records.read(Blocks, jobs / _FILE)
    return [one for one in map(records.safe, found.blocks[:_MOST] if found else ()) if one is not None]


def of_nodes(jobs: Path, nodes: str) -> Optional[Block]:
    """The block that ends first of those in which these nodes are.

    Args:
        nodes: Slurm's list of them.
    """
    named = (
        (re.compile(rf"(?:^|,){re.escape(one.queue)}-(?:(?:dy|st)-)?{re.escape(one.resource)}-[\[0-9]"), one)
        for one in read(jobs)
    )
    return min((one for name, one in named if name.search(nodes)), key=lambda one: one.ends, default=None)


def left(job: Path) -> Left:
    return records.read(Left, job / "state" / "block.json") or Left()


def leave(job: Path, block: Block) -> None:
    """Note that a job leaves a block. A full disk keeps no job there."""
    with contextlib.suppress(OSError):
        now = Left(left(job).count + 1, block.id, block.ends)
        files.write_json(job / "state" / "block.json", dataclasses.asdict(now))


def waits(jobs: Path, job: Path, queue: str) -> str:
    """Describe why a job that has left a block waits; empty once its queue has another block, or the same one for longer."""
    last = left(job)
    if not last.count or any(one.queue == queue and one.saves > time.time() for one in read(jobs)):
        return ""
    has = "has ended" if last.ends <= time.time() else f"ends at {clock(last.ends)}"
    return f"capacity block {last.id} {has}: it waits for the next one (reservation of queue {queue}), and continues there from its checkpoint"
