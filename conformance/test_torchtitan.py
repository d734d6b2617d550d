"""TorchTitan's configuration accepts the arguments of the TorchTitan kinds.

The kinds run the Neuron fork, which is not publicly available; PyPI's release parses arguments in the same way. A module
with the fork's name passes one of PyPI's configurations to the parser.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import cases, vendor
from conformance.launched import Launched
from conformance.resumed import resumed
from trainium_cdk.jobs import TorchTitan, read_log
from trainium_cdk.runner.readers import Step

HERE = Path(__file__).parent
ENVIRONMENT = vendor.ROOT / ".venvs/torchtitan"
ORIGINAL = "torchtitan 0.3.0 (PyPI), torch 2.14.0"
_MODULE = "from torchtitan.models.qwen3.config_registry import qwen3_debugmodel as {config}\n"
_PARSE = """import json, os, sys
from torch.distributed.run import parse_args
launch = parse_args([*json.loads(os.environ["LAUNCHER"]), "-m", "torchtitan.train"])
assert launch.local_ranks_filter == "0", launch
from torchtitan.config import ConfigManager
c = ConfigManager().parse_args(sys.argv[1:])
print(json.dumps({"steps": c.training.steps, "dump_folder": c.dump_folder, "assets": c.hf_assets_path, "enable": c.checkpoint.enable,
    "interval": c.checkpoint.interval, "load_step": c.checkpoint.load_step, "log_freq": c.metrics.log_freq,
    "tensorboard": c.metrics.enable_tensorboard, "data": getattr(c.dataloader, "dataset_path", None),
    "seq_len": c.training.seq_len}))
"""


def module(start: Launched, folder: Path) -> None:
    """Write the fork's module."""
    given = dict(zip(start.arguments, start.arguments[1:], strict=False))
    if "." in given["--module"]:
        place = folder / Path(*given["--module"].split("."))
        place.mkdir(parents=True, exist_ok=True)
        (place / "config_registry.py").write_text(_MODULE.format(config=given["--config"]))


def parse(start: Launched, folder: Path) -> subprocess.CompletedProcess[str]:
    """Parse a program's arguments in TorchTitan's environment, in a folder with the fork's module."""
    module(start, folder)
    command = [str(ENVIRONMENT / "bin/python"), "-c", _PARSE, *start.arguments]
    env = {**os.environ, **vendor.offline(), "PYTHONPATH": str(folder), "LAUNCHER": json.dumps(start.launcher)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "engine",
    [pytest.param(e, marks=pytest.mark.original(f"torchtitan on {e}: arguments", ORIGINAL)) for e in cases.ENGINES],
)
def test_its_configuration_takes_our_arguments(engine: str, tmp_path: Path) -> None:
    vendor.need("torchtitan")
    start = cases.start(engine, TorchTitan(nodes=2, ref="a" * 40, preset="qwen3-8b", steps=30, checkpoint_interval=7))
    assert start.program == "torchtitan.train"
    done = parse(start, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    parsed = json.loads(done.stdout.splitlines()[-1])
    assert (parsed["steps"], parsed["interval"], parsed["log_freq"]) == (30, 7, 1)
    assert parsed["enable"] is parsed["tensorboard"] is True
    assert parsed["load_step"] == -1  # the newest checkpoint
    assert parsed["dump_folder"] == "/efs/trn/jobs/torchtitan-qwen3-8b-t/output"
    refused = parse(replace(start, command=(*start.command, "--training.no_such_option", "1")), tmp_path)
    assert refused.returncode != 0
    assert "no_such_option" in refused.stderr + refused.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.original(f"{name}: its own configuration, options and data", ORIGINAL))
        for name in cases.MORE
        if name.startswith("torchtitan, ")
    ],
)
def test_presets_are_configurations_that_it_has(name: str, tmp_path: Path) -> None:
    """The real module and configuration of pytorch/torchtitan, with the job's data set."""
    vendor.need("torchtitan")
    job = cases.MORE[name]
    assert isinstance(job, TorchTitan)
    done = parse(cases.start("slurm", job), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    parsed = json.loads(done.stdout.splitlines()[-1])
    assert parsed["data"] == job.data or not job.data
    assert parsed["seq_len"] == 4096 or not job.override


_LOG = """import time
from types import SimpleNamespace
from torchtitan.components.metrics import BaseLogger, DeviceMemStats, MetricsProcessor
from torchtitan.tools.logging import init_logger
from torchtitan.tools.utils import Color
init_logger()
one = object.__new__(MetricsProcessor)
one.config = MetricsProcessor.Config(log_freq=1)
one.logger, one.color = BaseLogger(), Color()
one.parallel_dims = SimpleNamespace(non_data_parallel_size=4)
one.device_memory_monitor = SimpleNamespace(
    get_peak_stats=lambda: DeviceMemStats(1.5, 9.4, 2.25, 14.1, 0, 0), reset_peak_stats=lambda: None)
one.gpu_peak_flops, one.num_flops_per_token, one.has_quantization = 1e12, 1000, False
one.ntokens_since_last_log, one.data_loading_times, one.time_last_log = 40_000_000, [0.1], time.perf_counter() - 1
one.log(7, 3.25, 3.5, 0.75)
"""


@pytest.mark.original("torchtitan: reading its log", ORIGINAL)
def test_its_log_lines_are_read() -> None:
    vendor.need("torchtitan")
    command = [str(ENVIRONMENT / "bin/python"), "-c", _LOG]
    done = subprocess.run(command, env={**os.environ, **vendor.offline()}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (step,) = [found for found in read_log(done.stdout + done.stderr) if isinstance(found, Step)]
    assert (step.step, step.loss, step.grad_norm) == (7, 3.25, 0.75)
    assert step.tokens_per_second is not None
    assert 1_000_000 < step.tokens_per_second <= 10_000_000


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, texts, and the fork's module."""
    vendor.need("torchtitan")
    made = tmp_path_factory.mktemp("titan")
    env = {**os.environ, **vendor.offline()}
    subprocess.run([ENVIRONMENT / "bin/python", HERE / "tiny_chat.py", made], env=env, check=True, capture_output=True)
    (made / "text").mkdir()
    lines = [json.dumps({"text": f"text {n} " * (n % 7 + 1)}) for n in range(30)]
    (made / "text/train.jsonl").write_text("\n".join(lines))
    return made


JOB = TorchTitan(
    ref="a" * 40, preset="qwen3-8b", assets="/efs/model", data="/efs/text", steps=8, checkpoint_interval=3,
    override=("training.seq_len=32", "training.local_batch_size=2", "optimizer.implementation=foreach"),
)  # fmt: skip


def train(assets: Path, output: Path, stop: int) -> list[list[Any]]:
    """The steps of the job's command in a new process, which is lost after a step."""
    start = cases.start("slurm", JOB)
    module(start, assets)
    places = {
        "/efs/model": assets / "model",
        "/efs/text": assets / "text",
        "/efs/trn/jobs/torchtitan-qwen3-8b-t/output": output,
    }
    words = [str(places.get(word, word)) for word in start.arguments]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {
        **os.environ, **start.environment, **vendor.offline(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "PYTHONPATH": str(assets), "HF_HOME": str(assets / "hf"), "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [str(ENVIRONMENT / "bin/python"), str(HERE / "tiny_titan.py"), str(stop), *words]
    done = subprocess.run(command, cwd=assets, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line.removeprefix("step ")) for line in done.stdout.splitlines() if line.startswith("step ")]


@pytest.mark.original("torchtitan: a restart on its loader and checkpoints", ORIGINAL)
def test_a_restart_equals_a_training_without_one(assets: Path, tmp_path: Path) -> None:
    """Step, learning rate, data, loss, weights and the optimizer's state, to the last bit; steps after the checkpoint are made again. The last
    step has a checkpoint, though one is due every 3 steps: its trainer says which is the last, as tiny_titan.py does."""
    whole = train(assets, tmp_path / "whole", 0)
    assert [step[0] for step in whole] == [*range(1, 9)]
    assert len({str(step[2]) for step in whole}) == 8
    assert list((tmp_path / "whole/checkpoint/step-8").glob("*"))
    trainer = next(ENVIRONMENT.glob("lib/*/site-packages/torchtitan/trainer.py")).read_text()
    assert "last_step=(self.step == config.training.steps)" in trainer
    assert train(assets, tmp_path / "parts", 5) == whole[:5]
    other = resumed(JOB, tmp_path / "parts", tmp_path / "elsewhere")
    assert train(assets, tmp_path / "parts", 0) == whole[3:]
    # another job, from a copy of its checkpoints
    assert train(assets, other / "output", 0) == whole[3:]


@pytest.mark.original("torchtitan: training", ORIGINAL)
def test_it_trains_on_cpus() -> None:
    pytest.skip(
        "it has no CPU path: its device is CUDA where there is no accelerator, and its attention has no backward on CPUs"
    )
