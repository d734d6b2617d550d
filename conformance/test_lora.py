"""The example of Optimum Neuron that `lora` starts, with its own trainer and NeuronX Distributed's checkpoints, on a CPU as one worker.

The model is small. Replaced: the attention kernel and the compile cache (`tiny_lora.py`), and what of the Neuron SDK is imported and not used.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from conformance import cases, vendor
from conformance.upstream import find
from trainium_cdk.catalog.sources import sources
from trainium_cdk.jobs import Follower, Lora
from trainium_cdk.jobs.kinds.lora import EXAMPLES
from trainium_cdk.jobs.records import Step

HERE = Path(__file__).parent
PYTHON = vendor.ROOT / ".venvs/lora/bin/python"
TREES = {"optimum-neuron": "huggingface/optimum-neuron", "nxd": "aws-neuron/neuronx-distributed"}
COMMITS = {name: sources().repositories[name].commit for name in TREES}
ORIGINAL = f"{TREES['optimum-neuron']} {COMMITS['optimum-neuron'][:12]}"
STEPS = 2
INSTALLED = {
    "optimum-neuron": "0.4.5",
    "torch-neuronx": "2.8.0.2.10.16998",
    "neuronx-cc": "2.21.33363.0",
    "neuronx-distributed": "0.15.22404",
    "libneuronxla": "2.2.12677.0",
}
"""Packages of which only the versions are read."""


@pytest.mark.original("lora: training, and a checkpoint of its last step", ORIGINAL)
def test_the_last_step_is_saved(tmp_path: Path) -> None:
    """Although `--run-steps` is below the interval of its checkpoints."""
    vendor.need("lora")
    example = EXAMPLES["qwen3-8b"]
    folder = f"examples/training/{example.folder}"
    trees = {name: find(repository, COMMITS[name]) for name, repository in TREES.items()}
    for path in ("optimum/neuron", folder):
        trees["optimum-neuron"].copy(path, tmp_path)
    trees["nxd"].copy("src/neuronx_distributed", tmp_path)
    (tmp_path / "sitecustomize.py").write_bytes((HERE / "without_neuron.py").read_bytes())
    for name, version in INSTALLED.items():
        place = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    run([HERE / "tiny_chat.py", tmp_path], tmp_path)
    data = tmp_path / folder / example.dataset  # the library looks for it here before it asks the hub
    data.mkdir(parents=True)
    rows = [{"names": f"soup {n}", "recipes": f"Cook {n} carrots. " * 60} for n in range(40)]
    (data / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    output = tmp_path / "output"
    start = cases.start("slurm", Lora(weights="/efs/model", run_steps=STEPS, accumulation=2))
    places = {"/efs/model": str(tmp_path / "model"), "/efs/trn/jobs/lora-t/output": str(output)}
    words = [places.get(word, word) for word in start.arguments]
    words[words.index("--tensor_parallel_size") + 1] = "1"
    assert "--save_steps" not in words
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0") | dict.fromkeys(
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"
    )
    more = {
        **start.environment, **ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "t", "PJRT_DEVICE": "CPU",
        "HF_HOME": str(tmp_path / "hf"), "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, tmp_path / "src"))),
    }  # fmt: skip
    log = run([HERE / "tiny_lora.py", start.program, *words], tmp_path / folder, **more)

    [kept] = output.glob("checkpoint-*")
    state = json.loads((kept / "trainer_state.json").read_text())
    assert (kept.name, state["global_step"], state["save_steps"]) == (f"checkpoint-{STEPS}", STEPS, 500)
    shards = kept / "adapter_default/adapter_shards"
    assert (shards / "done").exists()  # NeuronX Distributed's own mark
    assert [*shards.glob("model/*.pt.tensors/*.pt")]
    assert (kept / "scheduler.pt").stat().st_size
    losses = [row["loss"] for row in state["log_history"] if "loss" in row]
    read = [
        record.loss for record in Follower().feed(log.encode()) if isinstance(record, Step) and record.loss is not None
    ]
    assert len(losses) == STEPS
    assert read == losses


def run(words: list[str | Path], folder: Path, **more: str) -> str:
    env = {**os.environ, **vendor.offline(), "CUDA_VISIBLE_DEVICES": "", **more}
    done = subprocess.run([PYTHON, *words], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout + done.stderr
