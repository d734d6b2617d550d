"""The metrics of jobs as files: every step that the logs have, in their order, in constant memory."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from trainium_cdk.jobs.records import Steps
from trainium_cdk.jobs.report.curve import METRICS
from trainium_cdk.jobs.report.events import EventWriter
from trainium_cdk.jobs.report.run import Take


@contextmanager
def as_csv(file: Path) -> Iterator[Take]:
    """A table: a row for each step, a column for each metric."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["job", "step", *METRICS])
        yield lambda id, numbers, steps: writer.writerows(
            (id, number, *row) for number, row in zip(numbers, steps.rows(METRICS), strict=True)
        )


@contextmanager
def as_json(file: Path) -> Iterator[Take]:
    """A list of objects; metrics that a line does not have are left out."""
    with file.open("w", encoding="utf-8") as out:
        before = "[\n"

        def take(id: str, numbers: Sequence[int], steps: Steps) -> None:
            nonlocal before
            columns = {"step": numbers, **_columns(steps)}
            out.write(before + ",\n".join(steps.as_json({"job": id}, columns)))
            before = ",\n"

        yield take
        out.write("[]\n" if before == "[\n" else "\n]\n")


@contextmanager
def as_events(folder: Path) -> Iterator[Take]:
    """A folder for TensorBoard (`tensorboard --logdir FOLDER`), with one run for each job.

    The logs have no time for each step, so that all have the time of the export.
    """
    now, last = time.time(), ""
    file: IO[bytes] | None = None
    writer: EventWriter | None = None

    def take(id: str, numbers: Sequence[int], steps: Steps) -> None:
        nonlocal last, file, writer
        if writer is None or id != last:  # an array has more members than a process may have open files
            if file:
                file.close()
            (folder / id).mkdir(parents=True, exist_ok=True)
            for earlier in (folder / id).glob("events.out.tfevents.*.trn"):
                earlier.unlink()  # TensorBoard would draw both
            file = (folder / id / f"events.out.tfevents.{int(now)}.trn").open("wb")
            last, writer = id, EventWriter(file, now)
        columns = _columns(steps)
        for number, row in zip(numbers, steps.rows(columns), strict=True):
            for name, value in zip(columns, row, strict=True):
                writer.scalar(name, value, number, now)

    try:
        yield take
    finally:
        if file:
            file.close()


def _columns(steps: Steps) -> dict[str, Sequence[float]]:
    return {name: steps.columns[name] for name in METRICS if name in steps.columns}
