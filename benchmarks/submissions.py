"""What `trn` adds to a submission, relative to plain `sbatch` on the same Slurm: `python -m benchmarks.submissions`.

The partition accepts jobs but starts none, so that only submissions are measured; the cases are interleaved.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from trainium_cdk.jobs import BertLarge, LocalTransport, Script, SlurmBackend

FLOOR = "sbatch"


def main() -> int:
    """Measure and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    if reason := available():
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, LocalSlurm.start(Path(folder) / "slurm", CONFIGURATION) as slurm:
        slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])
        env = slurm.node_env()
        backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=env))
        data = Path(env["TRN_SHARED_ROOT"]) / "efs/data"
        data.mkdir()

        def bare(arguments: list[str]) -> None:
            subprocess.run(arguments, env=env, check=True, capture_output=True)

        cases: dict[str, Callable[[], object]] = {
            FLOOR: lambda: bare(["sbatch", "--begin=now+900", "-o", "/dev/null", "--wrap=true"]),
            "bash -c sbatch, let begin": lambda: bare(
                [
                    "bash",
                    "-c",
                    "scontrol update StartTime=now JobId=$(sbatch --parsable --begin=now+900 -o /dev/null --wrap=true)",
                ]
            ),
            "trn: a script, one stage": lambda: backend.submit(Script(filename="job.sh", content=b"true\n")),
            "trn: bert-large, three stages": lambda: backend.submit(BertLarge(data="/efs/data")),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(runs):
            for name, run in cases.items():
                began = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - began)
        slurm.run(["scancel", "-p", "compute1"])
    floor = statistics.median(times[FLOOR])
    table = Table("case", "median ms", "ratio to sbatch", title=f"{runs} interleaved submissions")
    for name, taken in times.items():
        middle = statistics.median(taken)
        table.add_row(name, f"{middle * 1000:.1f}", f"{middle / floor:.1f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
