"""The first step after a restart has its own learning rate.

The script creates its schedule again, which sets the rate of the first step of all, and then loads the schedule's place: PyTorch sets the
rate that belongs to it only with the next step.
"""

import importlib
from typing import Any


def apply() -> None:
    schedule: Any = importlib.import_module("torch.optim.lr_scheduler").LambdaLR
    load = schedule.load_state_dict

    def exactly(self: Any, state_dict: Any) -> None:
        load(self, state_dict)
        for group, rate in zip(self.optimizer.param_groups, self.get_last_lr(), strict=True):
            group["lr"] = rate

    schedule.load_state_dict = exactly
