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
def as_csv(file: Path, *, sandbox: bool = False) -> Iterator[Take]:
    """A table: a row for each step, a column for each metric; of the sandbox one more, `sandbox`."""
    more = (True,) if sandbox else ()
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["job", "step", *METRICS, *(["sandbox"] if sandbox else [])])
        yield lambda id, numbers, steps: writer.writerows(
            (id, number, *row, *more) for number, row in zip(numbers, steps.rows(METRICS), strict=True)
        )


@contextmanager
def as_json(file: Path, *, sandbox: bool = False) -> Iterator[Take]:
    """A list of objects; metrics that a line does not have are left out. Those of the sandbox have `sandbox`."""
    more = {"sandbox": True} if sandbox else {}
    with file.open("w", encoding="utf-8") as out:
        before = "[\n"

        def take(id: str, numbers: Sequence[int], steps: Steps) -> None:
            nonlocal before
            columns = {"step": numbers, **_columns(steps)}
            out.write(before + ",\n".join(steps.as_json({"job": id, **more}, columns)))
            before = ",\n"

        yield take
        out.write("[]\n" if before == "[\n" else "\n]\n")


@contextmanager
def as_events(folder: Path, *, sandbox: bool = False) -> Iterator[Take]:
    """A folder for TensorBoard (`tensorboard --logdir FOLDER`), with one run for each job. The names of those of the sandbox end in it.

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
            place = folder / f"{id}{'-sandbox' if sandbox else ''}"
            place.mkdir(parents=True, exist_ok=True)
            for earlier in place.glob("events.out.tfevents.*.trn"):
                earlier.unlink()  # TensorBoard would draw both
            file = (place / f"events.out.tfevents.{int(now)}.trn").open("wb")
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
