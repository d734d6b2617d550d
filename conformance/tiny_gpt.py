"""`python tiny_gpt.py ARGUMENTS`, in the folder of the program: NxD Training's program trains on a CPU, as one worker. A line of JSON for each step; the
process is lost after step STOP of its environment.

Replaced are Lightning's refusal of a single device, and the constant of older releases of PyTorch/XLA. The rest is the vendor's."""

import hashlib
import json
import os
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch_xla.core.xla_env_vars as names
import torch_xla.distributed.xla_backend  # noqa: F401  registers `xla`
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.strategies import XLAStrategy

stop, program = int(os.environ["STOP"]), str(Path("training_orchestrator.py").resolve())
sys.argv[0] = program
sys.path[0] = str(Path(program).parent)
names.HOST_WORLD_SIZE = "HOST_WORLD_SIZE"
os.environ["HOST_WORLD_SIZE"] = "1"
XLAStrategy.setup_distributed = lambda self: setattr(rank_zero_only, "rank", self.global_rank)


def digest(tensors: Iterable[Any]) -> list[str]:
    values = [tensor.detach().cpu() for tensor in tensors]
    text = b"".join(v.double().numpy().tobytes() for v in values)
    return [str(values[0].dtype), hashlib.sha256(text).hexdigest()[:16]]


from neuronx_distributed_training.lightning_modules.model.megatron import MegatronGPTModel  # noqa: E402

forward, end, seen = MegatronGPTModel.forward_backward_step, MegatronGPTModel.on_train_batch_end, dict[str, Any]()


def forward_backward_step(self: Any, batch: Any, is_training: bool = False) -> Any:
    seen.update(data=digest([batch["tokens"], batch["labels"]]), rate=self._optimizer.param_groups[0]["lr"])
    found = forward(self, batch, is_training)
    seen["loss"] = float(found[0].detach().cpu())
    return found


def on_train_batch_end(self: Any, *arguments: Any, **named: Any) -> None:
    end(self, *arguments, **named)
    base = self._optimizer.optimizer.base_optimizer
    shards = [shard for group in base.param_groups for shard in group["params"]]
    state = {k: digest(base.state[s][k] for s in shards) for k in ("exp_avg", "exp_avg_sq")}
    step = self.trainer.global_step
    consumed = self.trainer.datamodule.compute_consumed_samples(step - self.init_global_step)
    values = [
        step,
        seen["rate"],
        consumed,
        seen["data"],
        seen["loss"],
        digest(self.parameters()),
        digest(shards),
        state,
    ]
    print("\nstep", json.dumps(values), flush=True)
    if step == stop:
        os._exit(0)


MegatronGPTModel.forward_backward_step = forward_backward_step
MegatronGPTModel.on_train_batch_end = on_train_batch_end
runpy.run_path(program, run_name="__main__")
