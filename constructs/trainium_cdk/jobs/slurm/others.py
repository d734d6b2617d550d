"""What others than `trn` run or queue on Slurm, with `sbatch`, `srun` or `salloc`."""

from __future__ import annotations

import re

from trainium_cdk.jobs.status import Foreign, parse_int

SCRIPT = """set -euo pipefail
unset "${!SQUEUE_@}"
SLURM_TIME_FORMAT=%s squeue -h -a -o 'trn-other|%i|%u|%T|%P|%V|%S|%D|%k|%j' || exit 5
"""
_OURS = re.compile(r"trn:(?P<id>[A-Za-z0-9][A-Za-z0-9.-]*)\|(?P=id):(prepare|precompile|train)")
_SUBMITTED = re.compile(rf"trn-other\|[^|]*\|(?P<user>[^|]*)\|[^|]*\|[^|]*\|(?P<at>\d+)\|[^|]*\|[^|]*\|{_OURS.pattern}")
_WAIT = frozenset({"PENDING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


def parse(output: str) -> tuple[Foreign, ...]:
    """The jobs in the output of `SCRIPT` that are none of `trn`'s, oldest first, as Slurm's queue has them."""
    found = []
    for line in output.splitlines():
        mark, *fields = line.split("|", 8)
        if mark != "trn-other" or len(fields) != 8 or _OURS.fullmatch(fields[7]):
            continue
        number, user, state, queue, submitted, started, nodes, _ = fields
        now, began = ("PENDING", None) if state in _WAIT else ("RUNNING", parse_int(started))
        found.append(Foreign(number, "sbatch", now, queue, parse_int(submitted), user, began, parse_int(nodes)))
    return tuple(found)


def submitted(output: str) -> dict[tuple[str, str], int]:
    """When each job of `trn` in the output of `SCRIPT` was submitted, in seconds since 1970, by its id and user: users may give their jobs
    the same id."""
    found: dict[tuple[str, str], int] = {}
    for line in output.splitlines():
        if told := _SUBMITTED.fullmatch(line):
            job = told["id"], told["user"]
            found[job] = min(int(told["at"]), found.get(job, int(told["at"])))
    return found
