"""The metrics of jobs as a table: every step that the logs have, in their order."""

from __future__ import annotations

import csv
from typing import IO

from trainium_cdk.jobs.report.curve import METRICS
from trainium_cdk.jobs.report.run import Take


def as_csv(out: IO[str], *, sandbox: bool = False) -> Take:
    """Write the first line of a table, and return what writes a row for each step; of the sandbox, there is a column `sandbox`."""
    more = (True,) if sandbox else ()
    writer = csv.writer(out)
    writer.writerow(["job", "step", *METRICS, *(["sandbox"] if sandbox else [])])
    return lambda id, number, step: writer.writerow((id, number, *(getattr(step, name) for name in METRICS), *more))
