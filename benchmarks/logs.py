"""How fast the logs of jobs are read: `python -m benchmarks.logs`, a part of `make bench`.

In MB of log for each second of processor time, from its bytes to what `trn plot`, `report` and `watch` draw (`Run.feed`: records, summary and
curves); the best of three. And the most memory that it took. The exit code is 1 below `AIM`.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from rich.console import Console
from rich.table import Table

from trainium_cdk.jobs import JobStatus
from trainium_cdk.jobs.report.cost import Price
from trainium_cdk.jobs.report.run import Run

STEP = b"LOG Fri Nov 20 08:00:05 2026 - (0, %d) step_loss : %.4f learning_rate : 2.80e-06 throughput : %.2f \n"
OTHER = (
    b"2026-11-20 08:00:05.000123:  39810  INFO ||NEURON_CC_WRAPPER||: Using a cached neff at "
    b"/fsx/trn/neuron_cache/bert-large/compute1-dy-trn-1/neuronxcc-2.21.18209.0/MODULE_16045690984503098046/model.neff\n"
)
PIECE = 196_608
"""Bytes that come at once, as from a head node."""
AIM = 100
"""MB/s that logs must reach."""


def speed(every: int, megabytes: int) -> float:
    """MB/s of a log in which one line of `every` is a training step."""
    run = Run(JobStatus("job", "bert-large", "trn1", "trn1.32xlarge", 1, None, ()), Price(None, ""))
    size, seconds, step = 0, 0.0, 0
    while size < megabytes * 1_000_000:
        lines = list[bytes]()
        for number in range(20_000):
            step += number % every == 0
            lines.append(OTHER if number % every else STEP % (step, 1 + 10 / step, 6400 + step % 101 * 1.7))
        text = b"".join(lines)
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        began = time.process_time()
        for piece in pieces:
            run.feed("train", piece)
        seconds += time.process_time() - began
        size += len(text)
    if run.reader.summary.steps != step or run.curves.step != step:
        raise ValueError(f"{run.reader.summary.steps} of {step} steps were read")
    return size / seconds / 1e6


def memory(megabytes: int) -> float:
    """The most memory in MB that reading a log takes."""
    tracemalloc.start()
    speed(1, megabytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> int:
    """Measure and print the table; returns the exit code."""
    table = Table("a training step in each", "MB/s of processor time", "at least", title="reading logs")
    slow = False
    for every in (1, 10, 50, 1000):
        found = max(speed(every, 30) for _ in range(3))
        slow |= found < AIM
        table.add_row(f"{every} lines" if every > 1 else "line", f"{found:.0f}", str(AIM))
    Console().print(table)
    few, many = memory(20), memory(80)
    Console().print(f"most memory: {few:.1f} MB for 20 MB of log, {many:.1f} MB for 80 MB")
    return int(slow or many > 1.5 * few)


if __name__ == "__main__":
    sys.exit(main())
