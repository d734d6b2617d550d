"""How long the project's commands take, relative to a baseline in the same run: `make bench`.

Absolute times mean little on a shared machine. The runs of all cases are interleaved, so that load affects all of them, and
processor time (of a command and of the Node process that it starts) is measured as well as elapsed time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import answers

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
EMPTY_APP = "import aws_cdk as cdk; app = cdk.App(); cdk.Stack(app, 'Empty'); app.synth()"
MANY = 50
QUICK = 4
"""Runs of a command that takes less than a second, for each of one that takes more."""


@dataclass(frozen=True)
class Case:
    """One command, and the case that it is compared with.

    Attributes:
        context: passed to the CDK app with `-c`; `env` names one of `ENVIRONMENTS`.
        most: the ratio of processor time that it should not exceed.
    """

    name: str
    arguments: tuple[str, ...]
    floor: str
    context: dict[str, str] = field(default_factory=dict)
    validation: bool = False
    most: float | None = None


@dataclass(frozen=True)
class Run:
    """Seconds of one run: elapsed, and processor time."""

    wall: float
    cpu: float


def _queues(number: int) -> dict[str, Any]:
    queues = [{"name": f"q{i}", "compute_resources": [{"name": "trn"}]} for i in range(number)]
    return {"pcluster": {"cpu_queue": None, "queues": queues}}


def _groups(number: int) -> dict[str, Any]:
    return {"eks": {"node_groups": [{"name": f"g{i}"} for i in range(number)]}}


ENVIRONMENTS = {
    "one queue": _queues(1),
    "queues": _queues(MANY),
    "one node group": _groups(1),
    "node groups": _groups(MANY),
}
PYTHON = str(BIN / "python")
EMPTY = "cdk app: an empty stack"
VALIDATED = "cdk app: an empty stack, validated"
"""As a new app of the CDK is: it validates its templates, unless CDK_VALIDATION=false, and as ours is."""
OURS = (PYTHON, "app.py")
TRN = str(BIN / "trn")
IMPORTS = "python: import boto3, pydantic"
SUBMIT = ("submit", "bert-large", "--nodes", "2")
NAIVE = (PYTHON, "-m", "benchmarks.naive_stack")
CASES = (
    Case("python: nothing", (PYTHON, "-c", "pass"), "python: nothing"),
    Case(IMPORTS, (PYTHON, "-c", "import boto3, pydantic"), "python: nothing"),
    Case("trn --help", (TRN, "--help"), IMPORTS),
    Case("trn submit --list", (TRN, "submit", "--list"), IMPORTS, most=1.5),
    Case("trn submit --dry-run", (TRN, *SUBMIT, "--dry-run", "--cluster", "{cluster}"), IMPORTS, most=2.0),
    Case("trn submit", (TRN, *SUBMIT), IMPORTS, most=3.0),
    Case("trn list", (TRN, "list"), IMPORTS, most=2.7),
    Case("trn status", (TRN, "status", answers.JOB), IMPORTS, most=2.7),
    Case(
        "trn check --offline", (TRN, "check", "--offline", "--environment", "tests/environments/tutorial.yaml"), IMPORTS
    ),
    Case(EMPTY, (PYTHON, "-c", EMPTY_APP), EMPTY),
    Case("cdk app: a naive Slurm stack", (*NAIVE, "slurm", os.devnull), EMPTY),
    Case("cdk app: one queue", OURS, EMPTY, {"engine": "slurm", "env": "one queue"}),
    Case(f"cdk app: {MANY} queues", OURS, "cdk app: one queue", {"engine": "slurm", "env": "queues"}),
    Case("cdk app: a naive EKS stack", (*NAIVE, "eks", os.devnull), EMPTY),
    Case("cdk app: one node group", OURS, EMPTY, {"engine": "eks", "env": "one node group"}),
    Case(f"cdk app: {MANY} node groups", OURS, "cdk app: one node group", {"engine": "eks", "env": "node groups"}),
    Case("cdk app: both stacks", OURS, EMPTY),
    Case(VALIDATED, (PYTHON, "-c", EMPTY_APP), VALIDATED, validation=True),
    Case("cdk app: both stacks, validated", OURS, VALIDATED, validation=True),
)


def measure(case: Case, folder: Path, aws: Mapping[str, str]) -> Run:
    """One run; it writes to `folder`, which has the environments. `aws`: the variables of `answers.serving`."""
    context = dict(case.context)
    if name := context.get("env"):
        context["env"] = str(folder / f"{name}.yaml")
    env = {
        **os.environ,
        **aws,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder),  # `trn use` of this machine
        "CDK_OUTDIR": str(folder / "out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "CDK_VALIDATION": str(case.validation).lower(),
    }
    arguments = [word.format(cluster=folder / "cluster.json") for word in case.arguments]
    before, began = _cpu(), time.perf_counter()
    subprocess.run(arguments, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Run(time.perf_counter() - began, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose names contain this")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.name or case.name == IMPORTS]
    measured: dict[str, list[Run]] = {case.name: [] for case in cases}
    with tempfile.TemporaryDirectory() as name, answers.serving() as aws:
        folder = Path(name)
        (folder / "cluster.json").write_text(answers.CLUSTER.model_dump_json())
        for file, environment in ENVIRONMENTS.items():
            (folder / f"{file}.yaml").write_text(json.dumps(environment))  # JSON is YAML
        for case in {case.arguments: case for case in cases}.values():
            measure(case, folder, aws)  # caches, of each program once
        for _ in track(range(options.runs), description="measuring", console=Console(stderr=True), transient=True):
            for case in cases:
                times = 1 if "cdk app" in case.name else QUICK
                measured[case.name] += [measure(case, folder, aws) for _ in range(times)]
    columns = ("command", "elapsed s", "ratio", "CPU s", "ratio", "at most", "to")
    table = Table(
        *columns, title=f"medians of {options.runs} interleaved runs, {QUICK} times as many of short commands"
    )
    for case in cases:
        mine, floor = median(measured[case.name]), median(measured.get(case.floor, measured[case.name]))
        wall, cpu = mine.wall / floor.wall, mine.cpu / floor.cpu
        figures = (f"{mine.wall:.2f}", f"{wall:.2f}", f"{mine.cpu:.3f}", f"{cpu:.2f}")
        table.add_row(case.name, *figures, f"{case.most:.1f}" if case.most else "", case.floor)
    Console().print(table)
    return 0


def median(runs: list[Run]) -> Run:
    return Run(statistics.median(r.wall for r in runs), statistics.median(r.cpu for r in runs))


if __name__ == "__main__":
    sys.exit(main())
