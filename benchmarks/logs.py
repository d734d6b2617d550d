"""How fast the records of a log are found: `python -m benchmarks.logs`, a part of `make bench`.

In MB of log for each second of processor time, and the most memory that the reader took: it keeps no more of a log than its last line.
The exit code is 1 below `AIM`.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from rich.console import Console
from rich.table import Table

from trainium_cdk.jobs.metrics import Follower

STEP = b"LOG Fri Nov 20 08:00:05 2026 - (0, %d) step_loss : 11.2500 learning_rate : 2.80e-06 throughput : 6497.86 \n"
OTHER = (
    b"2026-11-20 08:00:05.000123:  39810  INFO ||NEURON_CC_WRAPPER||: Using a cached neff at "
    b"/fsx/trn/neuron_cache/bert-large/compute1-dy-trn-1/neuronxcc-2.21.18209.0/MODULE_16045690984503098046/model.neff\n"
)
PIECE = 196_608
"""Bytes that come at once, as from a head node."""
AIM, FROM = 100, 10
"""MB/s that logs must reach with at most one step in so many lines."""


def speed(every: int, megabytes: int) -> float:
    """MB/s of a log in which one line of `every` is a training step."""
    lines = b"".join(STEP % i if i % every == 0 else OTHER for i in range(20_000))
    pieces = [lines[at : at + PIECE] for at in range(0, len(lines), PIECE)]
    reader, rounds = Follower(), max(1, megabytes * 1_000_000 // len(lines))
    reader.feed(STEP % 0)
    began = time.process_time()
    for _ in range(rounds):
        for piece in pieces:
            reader.feed(piece)
    return rounds * len(lines) / (time.process_time() - began) / 1e6


def memory(megabytes: int) -> float:
    """The most memory in MB that reading a log takes."""
    tracemalloc.start()
    speed(50, megabytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> int:
    """Measure and print the table; returns the exit code."""
    table = Table("a training step in each", "MB/s of processor time", "at least", title="reading logs")
    slow = False
    for every, megabytes in ((1, 10), (10, 50), (50, 100), (1000, 100)):
        found, aim = speed(every, megabytes), AIM if every >= FROM else 0
        slow |= found < aim
        table.add_row(f"{every} lines" if every > 1 else "line", f"{found:.0f}", str(aim or ""))
    Console().print(table)
    few, many = memory(20), memory(80)
    Console().print(f"most memory: {few:.1f} MB for 20 MB of log, {many:.1f} MB for 80 MB")
    return int(slow or many > 1.5 * few)


if __name__ == "__main__":
    sys.exit(main())
