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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
EMPTY_APP = "import aws_cdk as cdk; app = cdk.App(); cdk.Stack(app, 'Empty'); app.synth()"
MANY = 50


@dataclass(frozen=True)
class Case:
    """One command, and the case that it is compared with.

    Attributes:
        context: passed to the CDK app with `-c`; `env` names one of `ENVIRONMENTS`.
    """

    name: str
    arguments: tuple[str, ...]
    floor: str
    context: dict[str, str] = field(default_factory=dict)
    validation: bool = False


@dataclass(frozen=True)
class Run:
    """Seconds of one run: elapsed, and processor time."""

    wall: float
    cpu: float


def _queues(number: int) -> dict[str, Any]:
    return {"pcluster": {"queues": [{"name": f"q{i}", "compute_resources": [{"name": "trn"}]} for i in range(number)]}}


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
"""As a new app of the CDK is: it validates its templates, unless CDK_VALIDATION=false. Ours does where it is true."""
OURS = (PYTHON, "app.py")
NAIVE = (PYTHON, "-m", "benchmarks.naive_stack")
CASES = (
    Case("python: nothing", (PYTHON, "-c", "pass"), "python: nothing"),
    Case("python: import boto3, pydantic", (PYTHON, "-c", "import boto3, pydantic"), "python: nothing"),
    Case("trn --help", (str(BIN / "trn"), "--help"), "python: import boto3, pydantic"),
    Case(
        "trn validate",
        (str(BIN / "trn"), "validate", "tests/environments/tutorial.yaml"),
        "python: import boto3, pydantic",
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
    Case("cdk app: one queue, validated", OURS, VALIDATED, {"engine": "slurm", "env": "one queue"}, validation=True),
    Case(
        "cdk app: one node group, validated",
        OURS,
        VALIDATED,
        {"engine": "eks", "env": "one node group"},
        validation=True,
    ),
    Case("cdk app: both stacks, validated", OURS, VALIDATED, validation=True),
)


def measure(case: Case, folder: Path) -> Run:
    """One run; it writes to `folder`, which has the environments."""
    context = dict(case.context)
    if name := context.get("env"):
        context["env"] = str(folder / f"{name}.yaml")
    env = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "CDK_OUTDIR": str(folder / "out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "CDK_VALIDATION": str(case.validation).lower(),
    }
    before, began = _cpu(), time.perf_counter()
    subprocess.run(case.arguments, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Run(time.perf_counter() - began, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    measured: dict[str, list[Run]] = {c.name: [] for c in CASES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, environment in ENVIRONMENTS.items():
            (folder / f"{file}.yaml").write_text(json.dumps(environment))  # JSON is YAML
        for case in CASES:
            measure(case, folder)  # caches
        for _ in track(range(runs), description="measuring", console=Console(stderr=True), transient=True):
            for case in CASES:
                measured[case.name].append(measure(case, folder))
    table = Table("command", "elapsed s", "ratio", "CPU s", "ratio", "to", title=f"medians of {runs} interleaved runs")
    for case in CASES:
        mine, floor = _median(measured[case.name]), _median(measured[case.floor])
        wall, cpu = mine.wall / floor.wall, mine.cpu / floor.cpu
        table.add_row(case.name, f"{mine.wall:.2f}", f"{wall:.2f}", f"{mine.cpu:.2f}", f"{cpu:.2f}", case.floor)
    Console().print(table)
    return 0


def _median(runs: list[Run]) -> Run:
    return Run(statistics.median(r.wall for r in runs), statistics.median(r.cpu for r in runs))


if __name__ == "__main__":
    sys.exit(main())
