"""How long the commands of this project take, side by side in one run, as ratios to a floor: `make bench`.

Absolute times say little on a shared machine. The runs of all cases are interleaved, so that a busy moment hits all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv/bin"
EMPTY_APP = "import aws_cdk as cdk; app = cdk.App(); cdk.Stack(app, 'Empty'); app.synth()"


@dataclass(frozen=True)
class Case:
    """One command, and the case it is compared with."""

    name: str
    words: tuple[str, ...]
    floor: str
    env: tuple[tuple[str, str], ...] = ()


PYTHON = str(BIN / "python")
CASES = (
    Case("python: nothing", (PYTHON, "-c", "pass"), "python: nothing"),
    Case("python: import boto3, pydantic", (PYTHON, "-c", "import boto3, pydantic"), "python: nothing"),
    Case("trn --help", (str(BIN / "trn"), "--help"), "python: import boto3, pydantic"),
    Case(
        "trn validate",
        (str(BIN / "trn"), "validate", "tests/environments/tutorial.yaml"),
        "python: import boto3, pydantic",
    ),
    Case(
        "cdk app: an empty stack", (PYTHON, "-c", EMPTY_APP), "cdk app: an empty stack", (("CDK_VALIDATION", "false"),)
    ),
    Case("cdk app: ours", (PYTHON, "app.py"), "cdk app: an empty stack"),
    Case("cdk app: ours, validated", (PYTHON, "app.py"), "cdk app: an empty stack", (("CDK_VALIDATION", "true"),)),
)


def seconds(case: Case, outdir: str) -> float:
    """Wall time of one run."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "CDK_OUTDIR": outdir, **dict(case.env)}
    began = time.perf_counter()
    subprocess.run(case.words, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    """Measure and print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {c.name: [] for c in CASES}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            seconds(case, f"{folder}/out")  # caches
        for _ in track(range(runs), description="measuring", console=Console(stderr=True), transient=True):
            for case in CASES:
                times[case.name].append(seconds(case, f"{folder}/out"))
    table = Table("command", "median s", "spread s", "ratio", "to", title=f"{runs} interleaved runs")
    for case in CASES:
        mine, floor = statistics.median(times[case.name]), statistics.median(times[case.floor])
        spread = max(times[case.name]) - min(times[case.name])
        table.add_row(case.name, f"{mine:.2f}", f"{spread:.2f}", f"{mine / floor:.1f}", case.floor)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
