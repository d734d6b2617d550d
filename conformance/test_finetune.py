"""TRL's own program fine-tunes a small model with the arguments of the kind `finetune`, on CPUs with two processes, and goes on from its
checkpoint as if it had not been interrupted. What it prints has the forms of the logs that `make test` reads (tests/jobs/trl.yaml).

It is told to use CPUs: on Trainium, Transformers and Accelerate find the device `neuron`. Accelerate shards a model on accelerators
only: FSDP2 is configured here and not used.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conformance import cases, vendor
from conformance.launched import described
from conformance.resumed import resumed
from tests.jobs.log_lines import forms_of_trl
from tests.jobs.test_trl import RUNS, printed, read
from trainium_cdk.jobs import Finetune, Script

PYTHON = vendor.ROOT / ".venvs/torchtitan/bin/python"
ORIGINAL = "TRL 1.16.0, Transformers 5.23.0, PEFT 0.21.2, Accelerate 1.15.0 (PyPI)"
ON_CPUS = {**vendor.offline(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    vendor.need("torchtitan")
    made = tmp_path_factory.mktemp("finetune")
    script = Path(__file__).with_name("tiny_chat.py")
    subprocess.run([PYTHON, script, made], env={**os.environ, **ON_CPUS}, check=True, capture_output=True)
    return made


KEPT = {run["run"]: printed(run).decode() for run in RUNS}
"""A run may print less: a bar of one process and a warning of the other come to stand in one line, which is none of TRL's."""
SHARDS = {"Writing model shards: 0/0 [0<?, ?it/s]", "Writing model shards: 0/0 [0<0, 0it/s]"}
"""What is printed where all weights are written."""


def job_of(method: Any, *override: str) -> Finetune:
    return Finetune(
        method=method, data="/efs/chats", weights="/efs/model", run_steps=7, accumulation=2, batch_size=2, max_length=64,
        checkpoint_interval=4, learning_rate=1e-2, override=override,
    )  # fmt: skip


def run(folder: Path, cache: Path, output: Path, engine: str, job: Finetune, *more: str) -> tuple[int, str]:
    """The exit code and the log, in the order in which it was printed."""
    start = cases.start(engine, job)
    assert start.program == "trl.scripts.sft"
    configuration = folder / "fsdp.json"
    configuration.write_bytes(described(job, cases.cluster(engine, job)).spec.files["fsdp.json"])
    places = {"/efs/chats": folder / "chats", "/efs/model": folder / "model"}
    places |= {
        f"/efs/trn/jobs/finetune-t/{part}": place
        for part, place in (("output", output), ("files/fsdp.json", configuration))
    }
    arguments = [str(places.get(word, word)) for word in start.arguments]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(port)]
    env = {
        **os.environ,
        **start.environment,
        **ON_CPUS,
        "HF_HOME": str(cache),
        "TENSORBOARD_LOGGING_DIR": str(output),
    }
    done = subprocess.run(
        [PYTHON, "-m", *launcher, "-m", start.program, *arguments, "--use_cpu", "true", *more],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def train(folder: Path, cache: Path, output: Path, engine: str, method: Any, *more: str) -> tuple[str, dict[str, Any]]:
    """The log, and the state of the last checkpoint: of step 7, though one is due every 4 steps."""
    code, log = run(folder, cache, output, engine, job_of(method), *more)
    assert code == 0, log[-9000:]
    state = json.loads((output / "checkpoint-7/trainer_state.json").read_text())
    for step in state["log_history"]:
        del step["num_tokens"]  # TRL counts them again after a restart
    assert list(output.glob("events.out.tfevents.*"))
    return log, state


@pytest.mark.parametrize(
    ("engine", "method"),
    [
        pytest.param(
            engine,
            method,
            marks=pytest.mark.original(f"finetune, {method} on {engine}: a restart equals no restart", ORIGINAL),
        )
        for engine, method in (("slurm", "lora"), ("kubernetes", "full"))
    ],
)
def test_a_restart_equals_a_training_that_was_not_interrupted(
    engine: str, method: str, folder: Path, tmp_path: Path
) -> None:
    log, whole = train(folder, tmp_path / "hf", tmp_path / "whole", engine, method)
    shards = SHARDS if method == "full" else set()
    assert forms_of_trl(log) <= forms_of_trl(KEPT["healthy"]) | shards
    found = read(log.encode())
    loss = whole["log_history"][6]["loss"]
    assert (found.steps, found.progress, found.lost_at) == (7, f"7 logged steps: loss {loss:.4g}", None)
    shutil.copytree(tmp_path / "whole/checkpoint-4", tmp_path / "earlier/checkpoint-4")
    (tmp_path / "earlier/checkpoint-6").mkdir()  # not written to its end
    again_in = resumed(job_of(method), tmp_path / "earlier", tmp_path / "elsewhere") / "output"
    assert [file.name for file in again_in.iterdir()] == ["checkpoint-4"]
    checkpoint = str(again_in / "checkpoint-4")
    log, again = train(folder, tmp_path / "hf", again_in, engine, method, "--resume_from_checkpoint", checkpoint)
    assert forms_of_trl(log) <= forms_of_trl(KEPT["resume"]) | shards
    assert read(log.encode()).steps == 3
    assert again == whole
    weights = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
    for name in (weights, "optimizer.pt", "scheduler.pt"):
        one, other = ((run / "checkpoint-7" / name).read_bytes() for run in (tmp_path / "whole", again_in))
        assert one == other, name


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        pytest.param(given, kept, marks=pytest.mark.original(f"finetune, lora on slurm: log of {kept}", ORIGINAL))
        for given, kept in (
            (["learning_rate=1e20"], "nan-off"),
            (["learning_rate=1e20", "logging_nan_inf_filter=true"], "nan-filtered"),
            (["learning_rte=1"], "wrong-option"),
        )
    ],
)
def test_what_goes_wrong_is_read_from_its_log(override: list[str], kept: str, folder: Path, tmp_path: Path) -> None:
    code, log = run(folder, tmp_path / "hf", tmp_path / "output", "slurm", job_of("lora", *override))
    assert forms_of_trl(log) <= forms_of_trl(KEPT[kept])
    assert read(log.encode()).lost_at == (None if code else 2)
    assert code == (kept == "wrong-option")


_RANKS = b"""import os, pathlib, sys
import torch.distributed as dist
dist.init_process_group("gloo")
pathlib.Path(sys.argv[1], str(dist.get_rank())).write_text(f"{dist.get_world_size()} {os.environ['LOCAL_RANK']}")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(
            name, marks=pytest.mark.original(f"script: started by {name}", "PyTorch 2.14, Accelerate 1.15.0 (PyPI)")
        )
        for name in ("torchrun", "accelerate")
    ],
)
def test_a_script_is_started_once_for_each_core(launcher: Any, tmp_path: Path) -> None:
    """The command of the second of two nodes, and that of the first, at once."""
    vendor.need("torchtitan")
    script = Script(filename="ranks.py", content=_RANKS, nodes=2, args=("RESULTS",), launcher=launcher)
    start = cases.start("slurm", script)
    (tmp_path / "ranks.py").write_bytes(_RANKS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    nodes = []
    for node in ("0", "1"):
        words = [
            tmp_path / "ranks.py" if word.endswith("/ranks.py") else tmp_path if word == "RESULTS" else word
            for word in start.command
        ]
        given = {"--node_rank": node, "--machine_rank": node, "--nproc_per_node": "2", "--num_processes": "4"}
        given |= {
            "--master_addr": "127.0.0.1",
            "--main_process_ip": "127.0.0.1",
            "--master_port": port,
            "--main_process_port": port,
        }
        words = [given.get(str(before), word) for before, word in zip(["", *words], words, strict=False)]
        env = {**os.environ, **ON_CPUS, "HF_HOME": str(tmp_path / "hf")}
        nodes.append(subprocess.Popen([PYTHON, *words], env=env, stderr=subprocess.PIPE, text=True))
    for process in nodes:
        _, log = process.communicate(timeout=600)
        assert process.returncode == 0, log[-3000:]
    found = {file.name: file.read_text() for file in tmp_path.glob("[0-9]")}
    assert found == {str(rank): f"4 {rank % 2}" for rank in range(4)}
