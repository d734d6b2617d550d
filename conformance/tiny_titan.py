"""`python tiny_titan.py STOP ARGUMENTS`: a small model trained as TorchTitan's trainer trains its own, with TorchTitan's configuration, loader,
optimizer, schedule and checkpoints, in the same order. A line of JSON for each step; the process is lost after step STOP."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torchtitan.config import ConfigManager


class State:
    """What the trainer adds to a checkpoint."""

    step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, found: dict[str, Any]) -> None:
        self.step = int(found["step"])


def digest(tensors: Iterable[Any]) -> list[str]:
    values = [tensor.detach() for tensor in tensors]
    return [
        str(values[0].dtype),
        hashlib.sha256(b"".join(v.double().numpy().tobytes() for v in values)).hexdigest()[:16],
    ]


torch.distributed.init_process_group("gloo", rank=0, world_size=1)
torch.manual_seed(1)
stop, config, state = int(sys.argv[1]), ConfigManager().parse_args(sys.argv[2:]), State()
model = torch.nn.Sequential(torch.nn.Embedding(300, 8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 300))
optimizers = config.optimizer.build(model_parts=[model])
schedule = config.lr_scheduler.build(optimizers=optimizers, training_steps=config.training.steps)
loader = config.dataloader.build(
    dp_world_size=1, dp_rank=0, tokenizer=config.tokenizer.build(tokenizer_path=config.hf_assets_path),
    seq_len=config.training.seq_len, local_batch_size=config.training.local_batch_size,
    snapshot_every_n_steps=config.checkpoint.interval,
)  # fmt: skip
checkpoints = config.checkpoint.build(
    dataloader=loader, model_parts=[model], optimizers=optimizers, lr_schedulers=schedule, states={"train_state": state},
    sd_adapter=None, base_folder=config.dump_folder,
)  # fmt: skip
checkpoints.load(step=config.checkpoint.load_step)
batches = iter(loader)
while state.step < config.training.steps:
    state.step += 1
    inputs, labels = next(batches)
    optimizers.zero_grad()
    rates = schedule.get_metrics()
    loss = torch.nn.functional.cross_entropy(model(inputs["input"]).flatten(0, 1), labels.flatten())
    loss.backward()
    optimizers.step()
    schedule.step()
    moments = {
        name: digest(one[name] for optimizer in optimizers for one in optimizer.state.values())
        for name in ("exp_avg", "exp_avg_sq")
    }
    data = digest([inputs["input"], labels])
    print(
        "step",
        json.dumps([state.step, rates, data, float(loss.detach()), digest(model.parameters()), moments]),
        flush=True,
    )
    checkpoints.save(state.step, last_step=state.step == config.training.steps)
    if state.step == stop:
        os._exit(0)
checkpoints.close()
torch.distributed.destroy_process_group()
