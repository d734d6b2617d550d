"""A training that resumes goes on in its data where it stopped.

The script restores weights, optimizer, schedule and step, and then reads its data from the beginning. It reads in the same order in
each epoch, so the step says how much was read.
"""

import importlib
import sys
from collections.abc import Iterator
from typing import Any


class SkippingOnce:
    """A sampler without its first indices, in its first pass only."""

    def __init__(self, sampler: Any, skip: int):
        self.sampler, self.skip = sampler, skip

    def __iter__(self) -> Iterator[int]:
        indices: Iterator[int] = iter(self.sampler)
        for _ in range(self.skip):
            next(indices)
        self.skip = 0
        return indices

    def __len__(self) -> int:
        return len(self.sampler)


def apply() -> None:
    nxd: Any = importlib.import_module("neuronx_distributed")
    data: Any = importlib.import_module("training_utils")  # the script's own
    load, create = nxd.load_checkpoint, data.create_llama_pretraining_dataset
    steps = 0

    def noting(*arguments: Any, **named: Any) -> Any:
        nonlocal steps
        found = load(*arguments, **named)
        steps = found["global_step"] if found else 0
        return found

    def skipping(*arguments: Any, **named: Any) -> Any:
        loader, other = create(*arguments, **named)
        skip = steps * _microsteps(sys.argv) % len(loader)
        if skip:
            print(f"data: the first {skip} of {len(loader)} batches were read before the restart", flush=True)
            batches = loader.batch_sampler
            batches.sampler = SkippingOnce(batches.sampler, skip * batches.batch_size)
        return loader, other

    nxd.load_checkpoint = noting
    data.create_llama_pretraining_dataset = skipping


def _microsteps(argv: list[str]) -> int:
    """Batches of one optimizer step."""
    return int(argv[argv.index("--grad_accum_usteps") + 1])
