"""A restart of `llama3.1-8b` on the vendor's own loader and checkpoint code: NeuronX Distributed's, at the pinned commit, with PyTorch/XLA on
a CPU, as one worker. The model is small; `without_neuron.py` has what of the Neuron SDK is imported and not used."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conformance import cases, vendor
from conformance.resumed import resumed
from conformance.upstream import find
from trainium_cdk.catalog.sources import sources
from trainium_cdk.jobs import LlamaNxd

HERE = Path(__file__).parent
TREE = sources().repositories["nxd"]
REPOSITORY = "aws-neuron/neuronx-distributed"
ORIGINAL = f"{REPOSITORY} {TREE.commit[:12]}"
EXAMPLES = "examples/training/llama"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vendor.need()
    folder = tmp_path_factory.mktemp("nxd")
    found = find(REPOSITORY, TREE.commit)
    found.copy("src/neuronx_distributed", folder)
    found.copy(EXAMPLES, folder)
    (folder / "sitecustomize.py").write_bytes((HERE / "without_neuron.py").read_bytes())
    (folder / "data").mkdir()
    rows = [{"input_ids": [row, row + 1, (row * 7) % 50]} for row in range(22)]
    (folder / "data/rows.json").write_text(json.dumps(rows))
    return folder


def job_of(steps: int) -> LlamaNxd:
    return LlamaNxd(
        data="/efs/data",
        global_batch_size=2,
        run_steps=steps,
        steps=20,
        warmup_steps=4,
        checkpoint_interval=4,
        learning_rate=0.01,
    )


def train(tree: Path, folder: Path, steps: int, *, corrected: bool = True) -> list[list[Any]]:
    """The steps that the job's command takes, in a new process."""
    job = job_of(steps)
    start = cases.start("slurm", job)
    (folder / "script").mkdir(parents=True, exist_ok=True)
    for name, content in job.files.items():
        (folder / "script" / name).write_bytes(content)
    places = {
        "/efs/data": str(tree / "data"),
        "/efs/trn/jobs/llama3.1-8b-t/checkpoints": str(folder / "checkpoints"),
    }
    program = [str(folder / "script/launch.py"), start.corrections] if corrected else []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {
        **os.environ, **start.environment, **vendor.offline(), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PJRT_DEVICE": "CPU",
        "XLA_DOWNCAST_BF16": "1",  # as the script sets it with --use_mix_precision
        "PYTHONPATH": os.pathsep.join(map(str, (tree, tree / "src", tree / EXAMPLES))),
    }  # fmt: skip
    words = [*program, str(HERE / "tiny_llama.py"), *(places.get(word, word) for word in start.arguments)]
    done = subprocess.run([vendor.PYTHON, *words], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line.removeprefix("step ")) for line in done.stdout.splitlines() if line.startswith("step [")]


@pytest.mark.original("llama3.1-8b: a restart on its loader and checkpoints", ORIGINAL)
def test_a_restart_equals_a_training_without_one(tree: Path, tmp_path: Path) -> None:
    """Step, learning rate, data, losses, weights, and the optimizer's fp32 weights and state, to the last bit; over the end of an epoch."""
    whole = train(tree, tmp_path / "whole", 16)
    assert [step[0] for step in whole] == [*range(1, 17)]
    # what XLA_DOWNCAST_BF16 makes bf16 and fp32: 28 bytes a parameter in a checkpoint, as the plan says
    assert {(step[3][0], step[4][0]) for step in whole} == {("torch.float32", "torch.float64")}
    assert {state[0] for step in whole for state in step[5].values()} == {"torch.float64"}
    before = train(tree, tmp_path / "parts", 8)
    other = resumed(job_of(16), tmp_path / "parts/checkpoints", tmp_path / "elsewhere")
    assert before + train(tree, tmp_path / "parts", 16) == whole
    # another job, from a copy of its checkpoints
    assert before + train(tree, other, 16) == whole
    # what the script alone does
    plain = train(tree, tmp_path / "plain", 8, corrected=False)
    assert plain == before
    again = train(tree, tmp_path / "plain", 12, corrected=False)
    assert [step[1] for step in again] == [step[1] for step in whole[8:12]]
    assert all(a[2:4] != b[2:4] for a, b in zip(again, whole[8:12], strict=True))
