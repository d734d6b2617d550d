"""What `trn` adds to a submission, relative to plain `sbatch` on the same Slurm, and what its commands take with thousands of queued jobs:
`python -m benchmarks.submissions`.

The partition accepts jobs but starts none, so that only submissions are measured; the cases are interleaved, and processor time (of this
process and of those it starts) is measured as well as elapsed time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.commands import BIN, IMPORTS, PYTHON, Run, median
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from trainium_cdk.jobs import BertLarge, LocalTransport, Script, SlurmBackend

FLOOR, HUNDRED = "sbatch", "100 times sbatch"
CHAIN = """after=
for stage in 1 2 3; do
  after=$(sbatch --parsable ${after:+--dependency=afterok:$after --kill-on-invalid-dep=yes} --begin=now+900 -o /dev/null --wrap=true)
  first=${first:-$after}
done
scontrol update StartTime=now JobId=$first"""
"""What a chain of three stages takes without anything of ours."""


def main() -> int:
    """Measure and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5, help="of 100 jobs by one process")
    parser.add_argument("--queued", type=int, default=2000, help="further jobs in the queue, while the commands run")
    options = parser.parse_args()
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
            "three sbatch with dependencies, let begin": lambda: bare(["bash", "-c", CHAIN]),
            "trn: a script, one stage": lambda: backend.submit(
                Script(filename="job.sh", content=b"#!/bin/bash\ntrue\n")
            ),
            "trn: bert-large, three stages": lambda: backend.submit(BertLarge(data="/efs/data")),
        }
        submissions = _interleaved(cases, options.runs)
        many = _interleaved(_hundred(cases[FLOOR], backend), options.repeats)
        for _ in range(options.queued):
            cases["trn: a script, one stage"]()
        commands = _interleaved(_commands(Path(folder), env), 3)
        slurm.run(["scancel", "-p", "compute1"])
    _print(submissions, FLOOR, f"{options.runs} interleaved submissions by one process")
    _print(many, HUNDRED, f"100 jobs by one process, {options.repeats} interleaved repeats")
    _print(commands, IMPORTS, f"commands on a head node with {options.queued} jobs in the queue")
    return 0


def _hundred(bare: Callable[[], object], backend: SlurmBackend) -> dict[str, Callable[[], object]]:
    """The same 100 jobs of one stage, one by one and in one request."""
    jobs = [Script(filename="job.sh", content=b"#!/bin/bash\ntrue\n", args=(str(i),)) for i in range(100)]
    return {
        HUNDRED: lambda: [bare() for _ in jobs],
        "trn: 100 times submit": lambda: [backend.submit(job) for job in jobs],
        "trn: submit_many of 100": lambda: backend.submit_many(jobs),
    }


def _commands(folder: Path, env: dict[str, str]) -> dict[str, Callable[[], object]]:
    """Commands on the head node, of which one submits jobs that the others look at."""
    cluster, script = folder / "cluster.json", folder / "job.sh"
    cluster.write_text(make_cluster(fleet(nodes=4)).model_dump_json())
    script.write_text("#!/bin/bash\ntrue\n")

    def trn(*arguments: str) -> Callable[[], object]:
        options = ("--local", "--cluster", str(cluster))
        command = [str(BIN / "trn"), *arguments, *options]
        return lambda: subprocess.run(command, env=env, check=True, capture_output=True)

    return {
        IMPORTS: lambda: subprocess.run([PYTHON, "-c", "import boto3, pydantic"], check=True),
        "trn submit": trn("submit", str(script)),
        "trn list": trn("list"),
        "trn status": trn("status", "latest"),
        "trn cancel": trn("cancel", "latest"),
        "trn nodes": trn("nodes"),
    }


def _interleaved(cases: dict[str, Callable[[], object]], runs: int) -> dict[str, list[Run]]:
    measured: dict[str, list[Run]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, run in cases.items():
            before, began = _cpu(), time.perf_counter()
            run()
            measured[name].append(Run(time.perf_counter() - began, _cpu() - before))
    return measured


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _print(measured: dict[str, list[Run]], floor: str, title: str) -> None:
    table = Table("case", "elapsed ms", "ratio", "CPU ms", "ratio", title=f"{title}; ratios to {floor}")
    least = median(measured[floor])
    for name, runs in measured.items():
        one = median(runs)
        figures = (one.wall * 1000, one.wall / least.wall, one.cpu * 1000, one.cpu / least.cpu)
        table.add_row(name, *(f"{figure:.1f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
