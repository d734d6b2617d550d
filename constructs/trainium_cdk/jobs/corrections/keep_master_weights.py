"""Checkpoints have the fp32 weights of the optimizer.

The script leaves them out. NeuronX Distributed loads the optimizer before the model, so that ZeRO-1 would take its fp32 weights from the
model as it was first initialised, and the first step after a restart would put those in the place of the trained ones.
"""

import importlib
from typing import Any


def apply() -> None:
    script: Any = importlib.import_module("training_utils")  # the script's own
    choose = script.get_mixed_precision_config

    def choosing(*arguments: Any) -> dict[str, Any]:
        found: dict[str, Any] = choose(*arguments)
        return {**found, "use_master_weights_in_ckpt": found["use_master_weights"]}

    script.get_mixed_precision_config = choosing
