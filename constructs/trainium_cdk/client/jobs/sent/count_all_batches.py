"""A training that resumes reads the rest of its data once, and no sample again.

NeMo's loader begins where the training stopped, and gives the number of batches that are left as its length. Lightning goes on to count at the
batch of the checkpoint: its epoch would end that many batches too early, and the next one would begin with the data of the restart.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

MODULE = "nemo.collections.nlp.data.language_modeling.megatron.megatron_batch_samplers"


def apply() -> None:
    sys.meta_path.insert(0, Finder())  # not imported here: the script sets variables before it imports PyTorch/XLA


class Finder:
    """Corrects the module when the script has imported it."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def loading(module: ModuleType) -> None:
            load(module)
            correct(module)

        spec.loader.exec_module = loading
        return spec


def correct(module: Any) -> None:
    sampler = module.BaseMegatronBatchSampler
    left = sampler.__len__

    def all_of_them(self: Any) -> int:
        batches: int = self.consumed_samples // self.global_batch_size + left(self)
        return batches

    sampler.__len__ = all_of_them
