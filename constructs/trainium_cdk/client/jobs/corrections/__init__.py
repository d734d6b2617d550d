"""Corrections of vendors' training scripts, made in memory when they start, where a script cannot do what a job needs.

A kind that needs some sends them with the job, and starts its program through `launch.py`. The files run on nodes, in the vendor's
Python, and import nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from trainium_cdk.runner.spec import Place, Words

Correction = Literal[
    "count_all_batches",
    "find_data_here",
    "limit_metadata",
    "keep_fp32_state",
    "keep_random_state",
    "keep_learning_rate",
]
_HERE, _LAUNCH = Path(__file__).parent, "launch.py"


@cache
def sent(*names: Correction) -> Mapping[str, bytes]:
    """The files that a job with these corrections sends, by name."""
    return {name: (_HERE / name).read_bytes() for name in (_LAUNCH, *(f"{name}.py" for name in names))}


def words(script: str, *names: Correction) -> Words:
    """A program with these corrections."""
    return ((Place("files"), f"/{_LAUNCH}"), ",".join(names), script)
