"""A training that resumes goes on with the random numbers of the one that stopped.

The script's checkpoints have no generator's state: each restart would begin again with the seed, and repeat the dropout and the order
in the shards of its first steps. All ranks draw equally many numbers from one seed, so that the state of rank 0 is that of each.
"""

import importlib
from collections.abc import Iterator
from typing import Any

KEY = "random_state"


def apply() -> None:
    torch: Any = importlib.import_module("torch")
    device: Any = importlib.import_module("torch_xla.core.xla_model")
    loader: Any = importlib.import_module("torch_xla.distributed.parallel_loader").MpDeviceLoader
    save, load, iterate = torch.save, torch.load, loader.__iter__
    loaded: list[Any] = []

    def saving(data: Any, *arguments: Any, **named: Any) -> None:
        if isinstance(data, dict) and "optimizer" in data:
            data = {**data, KEY: (torch.get_rng_state(), device.get_rng_state())}
        save(data, *arguments, **named)

    def loading(*arguments: Any, **named: Any) -> Any:
        found = load(*arguments, **named)
        loaded[:] = [found.pop(KEY)] if isinstance(found, dict) and KEY in found else []
        return found

    def iterating(self: Any) -> Iterator[Any]:
        if loaded:  # what the script does before its first batch takes numbers too
            host, of_device = loaded.pop()
            torch.set_rng_state(host)
            device.set_rng_state(of_device)
        batches: Iterator[Any] = iterate(self)
        return batches

    torch.save, torch.load, loader.__iter__ = saving, loading, iterating
