"""Runs an example of Optimum Neuron as it is on one CPU, without its attention kernel and its compile cache: `tiny_lora.py PROGRAM ARGUMENTS`."""

import os
import runpy
import sys
from typing import Any

import neuronx_distributed.kernels.flash_attn as kernels
import torch
import torch_xla.core.xla_env_vars as names
from sitecustomize import Absent  # type: ignore[import-not-found]  # without_neuron.py


def attention(q: Any, k: Any, v: Any, *, softmax_scale: float, transpose_nki_inputs: bool, **_: Any) -> Any:
    if transpose_nki_inputs:
        q, k, v = (states.transpose(-1, -2) for states in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=softmax_scale)


kernels.nki_flash_attn_func = attention
sys.meta_path.append(Absent(lambda name: name.split(".")[0] == "libneuronxla"))  # the compile cache
names.HOST_WORLD_SIZE = "HOST_WORLD_SIZE"  # of older releases of PyTorch/XLA
os.environ["HOST_WORLD_SIZE"] = "1"
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
