"""Python files that kinds send with their jobs, for what only a node can decide; and corrections of vendors' training scripts, made in memory when
they start, where a script cannot do what a job needs (`launch.py`, with a file for each). They run there with the standard library alone (Python 3.9 or
newer), corrections in the vendor's Python, and import nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
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
_LAUNCH = "launch.py"


def read(name: str) -> bytes:
    """The content of one of them, as a job sends it."""
    return (resources.files(__name__) / name).read_bytes()


@cache
def corrections(*names: Correction) -> Mapping[str, bytes]:
    """The files that a job with these corrections sends, by name."""
    return {name: read(name) for name in (_LAUNCH, *(f"{name}.py" for name in names))}


def corrected(script: str, *names: Correction) -> Words:
    """A program with these corrections."""
    return ((Place("files"), f"/{_LAUNCH}"), ",".join(names), script)
