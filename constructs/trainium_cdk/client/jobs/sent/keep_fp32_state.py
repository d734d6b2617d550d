"""AdamW's state keeps its precision when a checkpoint is loaded.

The script's AdamW has its averages in fp32 beside weights in bf16. PyTorch's `load_state_dict` converts them to the type of the
weights, in which multiplying by 0.999 changes nothing: after a restart the training would be another one.
"""

import importlib
from typing import Any


def apply() -> None:
    script: Any = importlib.import_module("adamw_fp32_optim_params")  # beside the training script
    load = script.AdamW_FP32OptimParams.load_state_dict

    def exactly(self: Any, state_dict: Any) -> None:
        load(self, state_dict)
        parameters = [p for group in self.param_groups for p in group["params"]]
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                is_tensor = hasattr(value, "is_floating_point")  # the step is a plain number
                if is_tensor and value.is_floating_point():
                    self.state[parameter][name] = value.to(parameter.device)

    script.AdamW_FP32OptimParams.load_state_dict = exactly
