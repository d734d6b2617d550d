"""`python same_checkpoint.py A B`, in the vendor's environment: both files hold the same values of the same types, to the last bit.

Weights, the optimizer's state, the learning rate's schedule, the place in the data, and the generators' states.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """One line for each place where they differ."""
    if type(a) is not type(b):
        yield f"{path}: {type(a).__name__} and {type(b).__name__}"
    elif isinstance(a, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key in a and key in b:
                yield from differences(a[key], b[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: only in the {'first' if key in a else 'second'}"
    elif isinstance(a, list | tuple):
        yield from differences(dict(enumerate(a)), dict(enumerate(b)), path)
    elif isinstance(a, torch.Tensor):
        if a.dtype != b.dtype:
            yield f"{path}: {a.dtype} and {b.dtype}"
        elif not torch.equal(a, b):
            yield f"{path}: {int((a != b).sum()) if a.shape == b.shape else 'all'} of {a.numel()} values differ"
    elif a != b:
        yield f"{path}: {a} and {b}"


if __name__ == "__main__":
    first, second = (torch.load(file, map_location="cpu") for file in sys.argv[1:])
    sys.exit("\n".join(list(differences(first, second))[:20]) or None)
