"""The metrics of jobs as a table: every step and evaluation that the logs have, in their order."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import IO

from trainium_cdk.jobs.report.curve import METRICS, value
from trainium_cdk.jobs.report.run import Run
from trainium_cdk.runner.readers.records import Evaluation, Step


def write_csv(
    out: IO[str], runs: Iterable[Run], steps: Iterable[tuple[str, int, Step | Evaluation]], *, sandbox: bool = False
) -> None:
    """Write a table with a row for each step. The values of a sweep are columns `sweep.NAME`; of the sandbox, there is a column `sandbox`."""
    values = {run.status.id: run.status.values for run in runs}
    names = list(dict.fromkeys(name for one in values.values() for name in one))
    writer, more = csv.writer(out), (True,) if sandbox else ()
    writer.writerow(["job", *(f"sweep.{name}" for name in names), "step", *METRICS, *(["sandbox"] if sandbox else [])])
    for id, number, step in steps:
        swept = (values[id].get(name) for name in names)
        writer.writerow((id, *swept, number, *(value(step, name) for name in METRICS), *more))
