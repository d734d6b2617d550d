"""Corrections of training scripts, run with a real Python and, where they concern it, a real PyTorch."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.jobs.conftest import make_cluster
from tests.support import completed, need
from trainium_cdk.client.jobs import sent
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.sent import limit_metadata
from trainium_cdk.jobs import BertLarge, Gpt, JobError
from trainium_cdk.runner.layout import resolve
from trainium_cdk.runner.spec import Place

ARGUMENTS = """
import inspect, json, sys
from beside import VALUE
print(json.dumps([__name__, sys.argv, VALUE, "inspect, json" in inspect.getsource(sys.modules[__name__]), sys.path[0]]))
sys.exit(3)
"""


def test_to_the_script_nothing_is_different(tmp_path: Path) -> None:
    """Its name, arguments, folder, source and exit code."""
    (tmp_path / "train.py").write_text(ARGUMENTS)
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    plain = completed([sys.executable, "train.py", "--lr", "1 e"], cwd=tmp_path)
    corrected = launch(sys.executable, tmp_path, "limit_metadata", "train.py", "--lr", "1 e")
    assert (corrected.returncode, corrected.stdout) == (plain.returncode, plain.stdout) == (3, plain.stdout)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_service_that_does_not_answer_costs_seconds(dropped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked with urllib3, as the scripts do. With a hop limit of 1 it is connected and not answered; a network policy drops packets, as
    Linux does where more than its queue holds wait for a server."""
    monkeypatch.setattr(limit_metadata, "SERVICE", ("127.0.0.1",))
    monkeypatch.setattr(limit_metadata, "SECONDS", 0.1)
    for name in ("connect", "settimeout"):
        monkeypatch.setattr(socket.socket, name, getattr(socket.socket, name))
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, contextlib.ExitStack() as waiting:
        address = silent.getsockname()
        if dropped:
            waiting.enter_context(socket.create_connection(address))
        limit_metadata.apply()
        wanted = urllib3.exceptions.ConnectTimeoutError if dropped else urllib3.exceptions.ReadTimeoutError
        for limit in (None, 60):
            with urllib3.PoolManager(timeout=limit, retries=False) as pool, pytest.raises(wanted):
                pool.request("PUT", f"http://127.0.0.1:{address[1]}/latest/api/token")
            if not dropped:
                silent.accept()[0].close()
        monkeypatch.setattr(limit_metadata, "SERVICE", ())
        with socket.create_server(("127.0.0.1", 0)) as other:
            waiting.enter_context(client := socket.create_connection(other.getsockname(), timeout=60))
            assert client.gettimeout() == 60


OPTIMIZER = """
import torch
class AdamW_FP32OptimParams(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, grad = self.state[p], p.grad.float()
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(grad), exp_avg_sq=torch.zeros_like(grad))
                state["step"] += 1
                for name, value, keep in (("exp_avg", grad, 0.9), ("exp_avg_sq", grad * grad, 0.999)):
                    state[name].mul_(keep).add_((value * (1 - keep)).to(state[name].dtype))
                p.data.copy_(p.float() - group["lr"] * state["exp_avg"] / state["exp_avg_sq"].float().sqrt().add(1e-6))
"""
TRAINS = """
import json, sys, torch
from adamw_fp32_optim_params import AdamW_FP32OptimParams
model = torch.nn.Linear(4, 4).to(torch.bfloat16)
torch.nn.init.constant_(model.weight, 0.5); torch.nn.init.zeros_(model.bias)
optimizer = AdamW_FP32OptimParams([{"params": [model.weight]}, {"params": [model.bias]}], 1e-2)
def train(steps):
    for step in steps:
        optimizer.zero_grad()
        model(torch.arange(4.0).to(torch.bfloat16) * (step % 3 + 1)).sum().backward()
        optimizer.step()
def state():
    return [[name, str(v.dtype), v.flatten().tolist()] for s in optimizer.state.values() for name, v in s.items() if name != "step"]
train(range(5))
if sys.argv[1] == "interrupted":
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "ckpt.pt")
    saved = torch.load("ckpt.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
train(range(5, 30))
print(json.dumps([state(), model.weight.flatten().tolist()]))
"""


@pytest.fixture(scope="module")
def torch() -> str:
    """A Python with torch: this one, else the system's."""
    pythons = [sys.executable, "/usr/bin/python3"]
    found = [one for one in pythons if Path(one).exists() and completed([one, "-c", "import torch"]).returncode == 0]
    need(found, "no torch here (make test-system)")
    return found[0]


def test_the_optimizer_of_a_restart_equals_an_uninterrupted_one(tmp_path: Path, torch: str) -> None:
    (tmp_path / "adamw_fp32_optim_params.py").write_text(OPTIMIZER)
    (tmp_path / "train.py").write_text(TRAINS)
    whole = json.loads(run(torch, tmp_path, "train.py", "whole").stdout)
    assert {dtype for _, dtype, _ in whole[0]} == {"torch.float32"}
    assert json.loads(launch(torch, tmp_path, "keep_fp32_state", "train.py", "interrupted").stdout) == whole
    uncorrected = json.loads(run(torch, tmp_path, "train.py", "interrupted").stdout)
    assert {dtype for _, dtype, _ in uncorrected[0]} == {"torch.bfloat16"}


SCHEDULE = """
import json, pathlib, sys, torch
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([{"params": [weight]}, {"params": []}], 1e-2)
saved = torch.load("ckpt.pt") if pathlib.Path("ckpt.pt").exists() else None
if saved:
    optimizer.load_state_dict(saved["optimizer"])
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 4, 1), -1 if saved is None else 0)
if saved:
    schedule.load_state_dict(saved["schedule"])
for step in range(saved["step"] if saved else 0, 6):
    if step == int(sys.argv[1]):
        torch.save({"step": step, "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}, "ckpt.pt")
        break
    print(json.dumps([step, *(group["lr"] for group in optimizer.param_groups)]))
    optimizer.step()
    schedule.step()
"""


def test_the_first_step_of_a_restart_has_its_learning_rate(tmp_path: Path, torch: str) -> None:
    (tmp_path / "train.py").write_text(SCHEDULE)
    whole = run(torch, tmp_path, "train.py", "9").stdout
    before = run(torch, tmp_path, "train.py", "3").stdout
    assert before + launch(torch, tmp_path, "keep_learning_rate", "train.py", "9").stdout == whole
    assert before + run(torch, tmp_path, "train.py", "9").stdout != whole


SHARDS = """
import torch
torch.save({"files": [1, "/before/a_training_1.hdf5", "/before/b_training_2.hdf5"], "epoch": 2}, "ckpt.pt")
torch.save({"model": {}}, "other.pt")
print(torch.load("ckpt.pt"), torch.load("other.pt"))
"""


def test_a_restart_on_another_cluster_reads_the_data_that_it_has(tmp_path: Path, torch: str) -> None:
    (tmp_path / "train.py").write_text(SHARDS)
    done = launch(torch, tmp_path, "find_data_here", "train.py", "--data_dir", "/here/shards")
    files = [1, "/here/shards/a_training_1.hdf5", "/here/shards/b_training_2.hdf5"]
    assert done.stdout.strip() == f"{ {'files': files, 'epoch': 2} } { {'model': {}} }", done.stderr


XLA = """
_state = 3
def get_rng_state():
    return _state
def set_rng_state(state):
    global _state
    _state = state
def draw():
    set_rng_state((_state * 1103515245 + 12345) % 2**31)
    return _state
"""
LOADER = """
class MpDeviceLoader:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        return iter(self.loader)
"""
DRAWS = """
import json, pathlib, sys, torch
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, RandomSampler
from torch_xla.distributed import parallel_loader
torch.manual_seed(7)
first = 0
if pathlib.Path("ckpt_1.pt").exists():
    first = torch.load("ckpt_1.pt")["step"]
    torch.rand(3)  # as moving the model does
for step in range(first, int(sys.argv[1])):
    rows = list(range(8))
    loader = parallel_loader.MpDeviceLoader(DataLoader(rows, sampler=RandomSampler(rows), batch_size=4))
    for batch in loader:
        print(json.dumps([step, batch.tolist(), torch.rand(1).item(), xm.draw()]))
    torch.save({"step": step + 1, "optimizer": {}}, f"ckpt_{step + 1}.pt")
torch.save(torch.ones(1), "other.pt")
"""


def test_random_numbers_go_on_where_the_training_stopped(tmp_path: Path, torch: str) -> None:
    """Of the host and of the device; a checkpoint of a script that is not corrected is loaded too."""
    for name, text in (("core/xla_model", XLA), ("distributed/parallel_loader", LOADER)):
        file = tmp_path / f"torch_xla/{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (tmp_path / "train.py").write_text(DRAWS)

    def drawn(correct: bool, steps: int) -> list[Any]:
        done = (launch(torch, tmp_path, "keep_random_state", "train.py", str(steps)) if correct
                else run(torch, tmp_path, "train.py", str(steps)))  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    whole = drawn(True, 3)
    assert len(whole) == 6
    assert drawn(True, 3) == whole[2:]
    assert drawn(False, 3) != whole[2:]
    (tmp_path / "ckpt_1.pt").unlink()
    assert drawn(False, 1)[0][1:3] == whole[0][1:3]
    assert len(drawn(True, 3)) == 4


SAMPLERS = """
class BaseMegatronBatchSampler:
    total_samples, global_batch_size = 50, 4
    def __init__(self, consumed): self.consumed_samples = consumed
    def __len__(self): return (self.total_samples - self.consumed_samples) // self.global_batch_size
"""


def test_a_loader_that_resumes_has_the_batches_of_the_whole_training(tmp_path: Path) -> None:
    """NeMo is not imported before the script sets what PyTorch/XLA reads then."""
    place = tmp_path / "nemo/collections/nlp/data/language_modeling/megatron"
    place.mkdir(parents=True)
    (place / "megatron_batch_samplers.py").write_text(SAMPLERS)
    (tmp_path / "train.py").write_text(
        "import sys\nprint('nemo' in sys.modules)\nfrom nemo.collections.nlp.data.language_modeling.megatron.megatron_batch_samplers "
        "import BaseMegatronBatchSampler as B\nprint(len(B(0)), len(B(16)), len(B(48)))\n"
    )
    done = launch(sys.executable, tmp_path, "count_all_batches", "train.py")
    assert done.stdout == "False\n12 12 12\n", done.stderr


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (BertLarge(), ["limit_metadata", "keep_random_state", "keep_learning_rate", "find_data_here"]),
        (
            BertLarge(optimizer="adamw"),
            ["limit_metadata", "keep_random_state", "keep_learning_rate", "find_data_here", "keep_fp32_state"],
        ),
        (BertLarge(phase=2, checkpoint="a"), ["limit_metadata"]),
        (Gpt(), ["limit_metadata", "count_all_batches"]),
    ],
)
def test_kinds_send_what_they_start(job: BertLarge | Gpt, names: list[str]) -> None:
    planned = plan(job, make_cluster(neuron_release="2.28.1"))
    others = {"nxd_training.py", "phase2.py"}
    assert job.files(planned).keys() - others == {"launch.py", *(f"{name}.py" for name in names)}
    words = job.program(planned).words
    assert words[words.index((Place("files"), "/launch.py")) + 1] == ",".join(names)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ""),
        ({"steps": 100}, ""),
        ({"steps": 600}, ""),
        ({"steps": 700, "checkpoint_interval": 300}, "after step 700, but writes checkpoints every 300 steps only"),
        ({"steps": 500}, "the last 100 steps would be lost. Stop after 400 steps, or give another --checkpoint-interval"),
    ],
)  # fmt: skip
def test_the_last_step_has_a_checkpoint(fields: Mapping[str, int], message: str) -> None:
    """Of programs that write one every so many steps only: shorter trainings write it at their end."""
    if message:
        with pytest.raises(JobError, match=re.escape(message)):
            Gpt(**fields)
        return
    option = f"exp_manager.checkpoint_callback_params.every_n_train_steps={min(200, *fields.values(), 200)}"
    job = Gpt(**fields)
    assert option in job.program(plan(job, make_cluster(neuron_release="2.28.1"))).words


def launch(python: str, folder: Path, name: sent.Correction, *words: str) -> subprocess.CompletedProcess[str]:
    files = folder / "files"
    files.mkdir(exist_ok=True)
    for file, content in sent.corrections(name).items():
        (files / file).write_bytes(content)
    script, *arguments = words
    program = [resolve(word, {"files": str(files)}) for word in sent.corrected(script, name)]
    return completed([python, *program, *arguments], cwd=folder)


def run(python: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return completed([python, *words], cwd=folder, check=True)
