"""The members of an array of jobs, as `sbatch --array` reads them. It imports nothing slow."""

from __future__ import annotations

import re

PATTERN = r"[0-9]{1,3}(-[0-9]{1,3}(:[0-9]{1,3})?)?(,[0-9]{1,3}(-[0-9]{1,3}(:[0-9]{1,3})?)?){0,99}(%[0-9]{1,3})?"
MAX_MEMBERS = 1000
"""Most members: Slurm's MaxArraySize is 1001 by default, and ParallelCluster and PCS leave it (slurm.conf(5), 2026-11)."""


def indices(array: str) -> list[int]:
    """The indices of an array, in ascending order; empty where a range's first is not before its last.

    >>> indices("0-3%2"), indices("10-20:5,1,3"), indices("5-3,1")
    ([0, 1, 2, 3], [1, 3, 10, 15, 20], [])
    """
    found: set[int] = set()
    for part in array.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not (every := range(int(first), int(last or first) + 1, int(step or 1))):
            return []
        found.update(every)
    return sorted(found)


def problem(array: str) -> str:
    """Describe why an array with the right format cannot be; else empty."""
    if re.search(r"[:%]0+(?![0-9])", array):
        return "a step, and a number at a time, is at least 1"
    every = indices(array)
    if not every or max(every) >= MAX_MEMBERS:
        return f"its indices are 0 to {MAX_MEMBERS - 1}, the first of a range before its last"
    return ""
