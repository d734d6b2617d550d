"""A restart of `gpt-6.7b`: NxD Training's own program with NeMo, Lightning and NeuronX Distributed, at their pinned commits and versions, trains a
small model on a CPU, as one worker. `tiny_gpt.py` and `without_neuron.py` have what is replaced."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from conformance import cases, hub, vendor
from conformance.launched import described
from conformance.resumed import resumed
from conformance.upstream import find
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.jobs import Gpt, read_log
from trainium_cdk.runner.prepare.checkpoints import forget
from trainium_cdk.runner.readers import Step

HERE = Path(__file__).parent
TREES = sources().repositories
NXD = "22cadad34418fb8b5939bd8cdfc7a376eede9981"
"""v2.28.0 of the library that it imports, which the cluster or the image has."""
REPOSITORIES = {
    "nxdt": "aws-neuron/neuronx-distributed-training",
    "nxd": "aws-neuron/neuronx-distributed",
    "containers": "aws-neuron/deep-learning-containers",
    "apex": "NVIDIA/apex",
}
ORIGINAL = f"{REPOSITORIES['nxdt']} {TREES['nxdt'].commit[:12]}, NeMo 2.1.0, Lightning 2.5.0 (PyPI)"
SMALL = [
    "trainer.devices=1",
    "trainer.num_nodes=1",
    "distributed_strategy.tensor_model_parallel_size=1",
    "distributed_strategy.sequence_parallel=False",
    "model.num_layers=1",
    "model.hidden_size=16",
    "model.ffn_hidden_size=32",
    "model.num_attention_heads=2",
    "model.num_kv_heads=2",
    "model.encoder_seq_length=16",
    "model.hidden_dropout=0.0",
    "model.attention_dropout=0.0",
    "model.ffn_dropout=0.0",
    "model.optim.sched.warmup_steps=3",
    "model.optim.sched.constant_steps=0",
]
"""Without dropout: NxD Training does not save the generators' states, as the plan says."""
_DATA = """import random, sys, torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from numpy import uint16
made, numbers = IndexedDatasetBuilder(sys.argv[1] + ".bin", dtype=uint16), random.Random(1)
for _ in range(400):
    made.add_item(torch.tensor([*(numbers.randrange(96) for _ in range(numbers.randrange(8, 40))), 96]))
    made.end_document()
made.finalize(sys.argv[1] + ".idx")
"""
_FETCH = "import huggingface_hub, sys; huggingface_hub.snapshot_download(sys.argv[1], allow_patterns=sys.argv[2:])"


def site_packages(place: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, an environment above that of the vendors' packages with what `prepare` adds to it, data, and the fetched tokenizer."""
    vendor.need("nemo")
    made = tmp_path_factory.mktemp("nemo")
    for name, path in (
        ("nxdt", "src"),
        ("nxdt", "examples"),
        ("nxd", "src"),
        ("containers", "common"),
        ("apex", "apex"),
    ):
        find(REPOSITORIES[name], NXD if name == "nxd" else TREES[name].commit).copy(path, made / name)
    (made / "sitecustomize.py").write_bytes((HERE / "without_neuron.py").read_bytes())
    venv.EnvBuilder(symlinks=True, with_pip=False).create(made / "env")
    packages = site_packages(made / "env")
    (packages / "base.pth").write_text(f"{site_packages(vendor.ROOT / '.venvs/nemo')}\n")
    shutil.copytree(made / "apex/apex", packages / "apex")
    job = described(JOB, cases.cluster("slurm", JOB)).spec
    for name, content in job.files.items():
        (made / name).write_bytes(content)
    patches = [
        line
        for line in (made / "containers/common/nxdt_install_setup.sh").read_text().splitlines()
        if line.startswith("sed ")
    ]
    assert len(patches) == 2
    bash(
        made,
        "\n".join(["set -euo pipefail", "python3 nxd_training.py containers apex", f"VENV_PATH={packages}", *patches]),
    )
    words = {**{f"t{n}": n for n in range(96)}, "<|endoftext|>": 96}
    texts = {"vocab.json": json.dumps(words), "merges.txt": "#version: 0.2\n", "config.json": '{"model_type": "gpt2"}'}
    for name, place in (("vocab.json", "gpt2-vocab.json"), ("merges.txt", "gpt2-merges.txt")):
        (made / "data").mkdir(exist_ok=True)
        (made / "data" / place).write_text(texts[name])
    (made / "models/gpt2").mkdir(parents=True)
    for name, text in texts.items():
        (made / "models/gpt2" / name).write_text(text)
    bash(made, f"python3 -c '{_DATA}' {made}/data/my-gpt2_text_document")
    [model] = [step.with_ for step in job.prepare if step.do == "model"]
    fetched = shlex.join([model["model"], *model["patterns"]])
    with hub.hub(made / "models") as address:
        bash(
            made,
            f"HF_ENDPOINT={address} HF_HOME={made}/hf_cache python3 -c '{_FETCH}' {fetched}",
        )
    return made


def bash(folder: Path, text: str, **more: str) -> str:
    env = {
        **os.environ,
        **vendor.offline(),
        "VIRTUAL_ENV": str(folder / "env"),
        "PATH": f"{folder}/env/bin:{os.environ['PATH']}",
        **more,
    }
    done = subprocess.run(["bash", "-c", text], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


JOB = Gpt(data="/efs/gpt2", global_batch_size=4, micro_batch_size=2, steps=12, checkpoint_interval=4, learning_rate=0.01,
          tensor_parallel=32)  # fmt: skip


def train(folder: Path, output: Path, stop: int = 0, *, corrected: bool = True) -> tuple[list[list[Any]], str]:
    """The steps that the job's command takes in a new process, which is lost after a step, and its log."""
    start = cases.start("slurm", JOB)
    words = [
        word.replace("/efs/gpt2", f"{folder}/data").replace("/efs/trn/jobs/gpt-6.7b-t/output", str(output))
        for word in start.arguments
    ]
    corrections = start.corrections if corrected else "limit_metadata"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0") | dict.fromkeys(
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"
    )
    env = {
        **os.environ, **start.environment, **vendor.offline(), **ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "STOP": str(stop),
        "TORCHELASTIC_RUN_ID": "t", "PJRT_DEVICE": "CPU", "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "HF_HOME": str(folder / "hf_cache"), "PYTHONPATH": os.pathsep.join(map(str, (folder, folder / "nxd/src", folder / "nxdt/src"))),
    }  # fmt: skip
    command = [
        folder / "env/bin/python",
        folder / "launch.py",
        corrections,
        HERE / "tiny_gpt.py",
        *words,
        *SMALL,
        f"hydra.run.dir={output}.hydra",
    ]
    done = subprocess.run(
        [str(word) for word in command], env=env, cwd=folder / "nxdt/examples", capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    return [
        json.loads(line.removeprefix("step ")) for line in done.stdout.splitlines() if line.startswith("step [")
    ], done.stdout + done.stderr


@pytest.mark.original("gpt-6.7b: a restart of its program", ORIGINAL)
def test_a_restart_equals_a_training_without_one(folder: Path, tmp_path: Path) -> None:
    """Step, learning rate, data, loss, weights, and the optimizer's fp32 weights and state, to the last bit; after a loss during a checkpoint."""
    whole, log = train(folder, tmp_path / "whole")
    assert [(step[0], step[2]) for step in whole] == [(n, 4 * n) for n in range(1, 13)]
    assert len({str(step[3]) for step in whole}) == 12
    assert {(step[5][0], step[6][0]) for step in whole} == {("torch.float32", "torch.float64")}
    steps = {found.step: found for found in read_log(log.encode()) if isinstance(found, Step)}
    assert steps[11].loss == pytest.approx(whole[-1][4], abs=0.01)
    parts = tmp_path / "parts"
    assert train(folder, parts, 6)[0] == whole[:6]
    checkpoints = parts / "checkpoints"
    [kept] = checkpoints.iterdir()
    torn = checkpoints / "megatron_gpt--step=8-consumed_samples=32.0.ckpt"
    shutil.copytree(kept, torn)
    shutil.rmtree(torn / "optim")
    (torn / "done").unlink()
    other = resumed(JOB, checkpoints, tmp_path / "elsewhere")
    made = described(JOB, cases.cluster("slurm", JOB)).spec.checkpoints
    assert made is not None
    forget(made, checkpoints)
    assert [*checkpoints.iterdir()] == [kept]
    plain = tmp_path / "plain"
    shutil.copytree(parts, plain)
    assert train(folder, parts)[0] == whole[4:]
    # another job, from a copy of its checkpoints
    assert train(folder, other / "output")[0] == whole[4:]
    # what the program alone does; from the torn checkpoint it would not start
    again, _ = train(folder, plain, corrected=False)
    assert again[:4] == whole[4:8]
    assert [step[3] for step in again[4:]] == [step[3] for step in whole[4:8]]  # the data of the restart once more
