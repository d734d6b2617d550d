"""What users feel, as ratios within one run, so that a slower machine passes: `make bench`. The exit code is 1 above a limit. With the word `goodput`:
the folder `goodput` alone.

How many requests to AWS a command makes; what a synthesis takes, compared with a naive stack of the same parts; what commands take with 2,000 jobs
in the queue, compared with an empty one; the memory of the function that supplies EKS nodes, compared with its limit; a training's step while its
checkpoint is copied to S3, compared with one without.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tools.benchmarks import answers, keeping, scaler
from tools.benchmarks.goodput import printing
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
JOBS, RUNS = 2000, 3
Row = tuple[str, float, float]
"""What is measured, its figure, and the most that it may be."""


def cpu(command: list[str], env: Mapping[str, str]) -> float:
    """Seconds of processor time of a command and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def ratio(
    command: list[str], floor: list[str], env: Mapping[str, str], of_floor: Mapping[str, str] | None = None
) -> float:
    """The median of interleaved runs, each next to one of the floor, after one that fills caches."""
    pairs = [(cpu(command, env), cpu(floor, of_floor or env)) for _ in range(RUNS + 1)]
    return statistics.median(mine / theirs for mine, theirs in pairs[1:])


def requests(folder: Path) -> Iterator[Row]:
    """CloudFormation describes the stack, and EC2 says that the head node is the cluster's. Then SSM has two: one sends, one asks for the output."""
    commands = (
        ("list", ["list"], 4),
        ("status", ["status", answers.JOB], 4),
        ("submit", ["submit", "bert-large", "--nodes", "2"], 4),
    )
    for name, words, most in commands:
        with answers.serving(name) as (aws, asked):
            cpu([str(BIN / "trn"), *words], {**os.environ, **aws, "XDG_CONFIG_HOME": str(folder)})
            yield f"requests of trn {name}", len(asked), most


def synthesis(folder: Path) -> Iterator[Row]:
    for engine, section, most in (("slurm", {"pcluster": {"cpu_queue": None}}, 1.6), ("eks", {"eks": {}}, 1.95)):
        file = folder / f"{engine}.yaml"
        file.write_text(json.dumps(section))  # JSON is YAML
        env = {**os.environ, "CDK_OUTDIR": str(folder / "out"), "CDK_VALIDATION": "false"}
        env["CDK_CONTEXT_JSON"] = json.dumps({"engine": engine, "env": str(file)})
        naive = [sys.executable, "-m", "tools.benchmarks.naive_stack", engine, os.devnull]
        yield f"synthesis for {engine}, to a naive stack", ratio([sys.executable, "app.py"], naive, env), most


def queue(folder: Path) -> Iterator[Row]:
    """The partition accepts jobs but starts none."""
    if reason := available():
        print(f"not measured: {JOBS} jobs: {reason}", file=sys.stderr)
        return
    cluster = folder / "cluster.json"
    cluster.write_text(make_cluster(fleet(nodes=4)).model_dump_json())
    with (
        LocalSlurm.start(folder / "empty", CONFIGURATION) as empty,
        LocalSlurm.start(folder / "full", CONFIGURATION) as full,
    ):
        for slurm, count in ((empty, 1), (full, JOBS)):
            slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])
            backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=slurm.node_env()))
            jobs = [Script(filename="job.sh", content=b"#!/bin/bash\ntrue\n", args=(str(i),)) for i in range(count)]
            for first in range(0, count, 100):
                backend.submit_many(jobs[first : first + 100])
        for name, words in (("list", ["list"]), ("status latest", ["status", "latest"])):
            command = [str(BIN / "trn"), *words, "--local", "--cluster", str(cluster)]
            yield f"trn {name} with {JOBS} jobs, to one", ratio(command, command, full.node_env(), empty.node_env()), 4
        full.run(["scancel", "-p", "compute1"])
        empty.run(["scancel", "-p", "compute1"])


def memory(_: Path) -> Iterator[Row]:
    yield (
        f"memory of the scaler with {scaler.PODS:,} pods, to its limit",
        scaler.run()["megabytes"] / scaler.MEMORY_MB,
        0.5,
    )


def main() -> int:
    above = 0
    for part in (requests, synthesis, memory, queue, keeping.measure):
        with tempfile.TemporaryDirectory() as folder:
            for name, figure, most in part(Path(folder)):
                above += figure > most
                print(f"{name:<52}{figure:>8.2f}   at most {most}{'   ABOVE' if figure > most else ''}", flush=True)
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(printing.main() if sys.argv[1:] == ["goodput"] else main())
