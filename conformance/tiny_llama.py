"""A small model trained as the vendor's Llama script trains its own: the loader of its training_utils.py, NeuronX Distributed's mixed
precision, ZeRO-1 and checkpoints, in the same order. A line of JSON for each step."""

import argparse
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

import neuronx_distributed as nxd
import torch
import torch_xla.core.xla_env_vars as names
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend  # noqa: F401  registers `xla`
from neuronx_distributed.parallel_layers import parallel_state
from neuronx_distributed.utils.adamw_fp32_optim_params import AdamW_FP32OptimParams
from torch_xla.distributed import parallel_loader
from training_utils import create_llama_pretraining_dataset, get_mixed_precision_config
from transformers import get_linear_schedule_with_warmup

parser = argparse.ArgumentParser()
for name in ("steps_this_run", "max_steps", "warmup_steps", "grad_accum_usteps", "batch_size", "checkpoint_freq",
             "num_kept_checkpoint", "use_gpu_compatible_precision"):  # fmt: skip
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--lr", type=float)
for name in ("data_dir", "checkpoint_dir", "loading_step"):
    parser.add_argument(f"--{name}")
flags, _ = parser.parse_known_args()
if flags.loading_step != "latest_if_exists":
    parser.error("a restart does not resume")
names.HOST_WORLD_SIZE = "HOST_WORLD_SIZE"  # of older releases of PyTorch/XLA
os.environ["HOST_WORLD_SIZE"] = "1"

torch.distributed.init_process_group("xla", rank=0, world_size=1)
torch.manual_seed(1)
config = nxd.neuronx_distributed_config(
    tensor_parallel_size=1,
    optimizer_config={"zero_one_enabled": True, "grad_clipping": True, "max_grad_norm": 1.0},
    mixed_precision_config=get_mixed_precision_config(flags.use_gpu_compatible_precision > 0),
)
model = nxd.initialize_parallel_model(
    config, lambda: torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)), True
)
optimizer = nxd.initialize_parallel_optimizer(
    config, AdamW_FP32OptimParams, list(model.parameters()), lr=flags.lr, betas=(0.9, 0.999), weight_decay=0.01
)
schedule = get_linear_schedule_with_warmup(optimizer, flags.warmup_steps, flags.max_steps)
step = 0
if nxd.has_checkpoint(flags.checkpoint_dir):
    found = nxd.load_checkpoint(flags.checkpoint_dir, tag=None, model=model, optimizer=optimizer, scheduler=schedule)
    step = found["global_step"]
loader, _ = create_llama_pretraining_dataset(
    flags.data_dir,
    flags.batch_size,
    parallel_state.get_data_parallel_size(),
    parallel_state.get_data_parallel_rank(),
    1,
)


def digest(tensors: Iterable[Any]) -> list[str]:
    values = [tensor.detach().cpu() for tensor in tensors]
    return [
        str(values[0].dtype),
        hashlib.sha256(b"".join(v.double().numpy().tobytes() for v in values)).hexdigest()[:16],
    ]


def report(step: int, rate: float, losses: list[Any]) -> None:
    base = optimizer.optimizer.base_optimizer
    shards = [shard for group in base.param_groups for shard in group["params"]]
    state = {k: digest([base.state[s][k] for s in shards]) for k in ("exp_avg", "exp_avg_sq")}
    print("step", json.dumps([step, rate, losses, digest(model.parameters()), digest(shards), state]), flush=True)


while step < flags.steps_this_run:
    losses = []
    for batch in parallel_loader.MpDeviceLoader(loader, xm.xla_device()):
        loss = model(batch["input_ids"]).square().mean()
        (loss / flags.grad_accum_usteps).backward()
        losses.append([batch["input_ids"].cpu()[:, 0].tolist(), float(loss.detach().cpu())])
        if len(losses) < flags.grad_accum_usteps:
            continue
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        xm.mark_step()
        step += 1
        report(step, rate, losses)
        losses = []
        if step % flags.checkpoint_freq == 0:
            content = {"epoch": 0, "global_step": step}
            nxd.save_checkpoint(flags.checkpoint_dir, f"step_{step}", model, optimizer, schedule, content, 8, True,
                                flags.num_kept_checkpoint)  # fmt: skip
        if step >= flags.steps_this_run:
            break
nxd.finalize_checkpoint()
