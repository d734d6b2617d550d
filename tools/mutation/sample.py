"""Leaves a sample of a session's faults, the same ones each time, and skips the others: `sample.py SESSION COUNT`."""

import random
import sys

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

with use_db(sys.argv[1]) as session:
    items = sorted(session.pending_work_items, key=lambda item: str(item.mutations))
    random.Random(1).shuffle(items)  # noqa: S311
    for item in items[int(sys.argv[2]) :]:
        session.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))
