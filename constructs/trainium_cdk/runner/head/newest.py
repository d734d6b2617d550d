"""The newest checkpoint of each job, and whether S3 has it, by what jobs have recorded."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from .. import PEOPLE, aws, layout, records
from ..errors import Refused
from ..layout import owner_of
from ..prepare import checkpoints
from ..requests import Checkpoint, Cluster, FoundCheckpoints, ListCheckpoints
from ..spec import ARRAY_PATTERN, SpecError, array_indices
from ..status import checkpoints_in
from ..work import keep
from . import jobs


def list_checkpoints(cluster: Cluster, _: ListCheckpoints) -> FoundCheckpoints:
    """See `requests.FoundCheckpoints`."""
    ids = jobs.newest(cluster, 1000, "job.json")  # Kubernetes has no `submitted.json`
    with contextlib.redirect_stderr(io.StringIO()), ThreadPoolExecutor(layout.COPIES_AT_ONCE) as pool:
        found = [one for each in pool.map(lambda id: list(_of_job(cluster, id)), ids) for one in each]
    people = sorted((cluster.shared / PEOPLE).glob("*")) if cluster.multi_user and "/" not in cluster.folder else ()
    return FoundCheckpoints(tuple(found), tuple(one.name for one in people if owner_of(one) == one.name))


def _of_job(cluster: Cluster, id: str) -> Iterator[Checkpoint]:
    with contextlib.suppress(SpecError, RecursionError, ValueError, OSError):  # damaged, or deleted meanwhile
        job = layout.read_job(cluster.jobs / id)
        made, is_array = job.checkpoints, re.fullmatch(ARRAY_PATTERN, job.array)
        for index in map(str, array_indices(job.array)) if is_array else [""]:
            own, name = cluster.jobs / id / index, "/".join(filter(None, (id, index)))
            path = made and checkpoints_in(f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}", made.folder)
            if made and path and (found := checkpoints.latest(made, own / made.folder / made.place)):
                record, stats = records.read(keep.Record, own / keep.FILE) or keep.Record(), {}
                with contextlib.suppress(Refused):  # it has a link
                    stats = aws.stats(found)
                has = aws.name_of(found, stats) in record.complete
                to = "" if has else f"{name}/copied" if record.begun else name
                yield Checkpoint(name, found.name, sum(size for size, _ in stats.values()), path, to)
