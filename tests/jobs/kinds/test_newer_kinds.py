"""TorchTitan and Optimum Neuron: the command that each node runs, and what is refused before it is sent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import Job, JobError, Lora, TorchTitan, TorchTitanLlama, render
from trainium_cdk.outputs import SlurmCluster

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
REF = "0123456789abcdef0123456789abcdef01234567"
XLA = {"neuron_release": "2.26.1", "neuron_driver": "2.24.7.0", "os": "ubuntu2204"}
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}
LLAMA = {"ref": REF, "module": "graph_trainer.llama3", "config": "llama3_8b", "assets": "/efs/it's llama"}


def cluster(kind: str = "trn1.32xlarge", **changes: Any) -> SlurmCluster:
    return make_cluster(fleet(kind), **changes)


TRN1, TRN2 = cluster(**XLA), cluster("trn2.48xlarge", **NATIVE)


@pytest.mark.parametrize(
    ("job", "on", "command"),
    [
        (
            Lora(nodes=2, run_steps=3),
            TRN1,
            "finetune_qwen3.py --model_id Qwen/Qwen3-8B --output_dir \"$output\" --do_train --num_train_epochs 3 --max_steps \"$steps\" "
            "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --learning_rate 0.0008 --bf16 --tensor_parallel_size 8 --zero_1 "
            "--async_save --overwrite_output_dir --skip_cache_push --logging_steps 1 --report_to tensorboard --logging_dir \"$output\" --lr_scheduler_type cosine",
        ),
        (
            Lora(model="llama3.1-8b", weights="/efs/it's llama", accumulation=4),
            TRN1,
            "finetune_llama.py --model_id \"${TRN_SHARED_ROOT:-}\"'/efs/it'\"'\"'s llama' --output_dir",
        ),
        (
            TorchTitan(ref=REF, nodes=2, steps=5),
            TRN2,
            "-m torchtitan.train --module torchtitan_neuron.models.qwen3 --config qwen3_8b_tp4_fsdp16_sac --training.steps 5 "
            "--dump_folder \"$job/output\" --hf_assets_path \"${assets[0]}\" --checkpoint.enable --checkpoint.interval 500",
        ),
        (TorchTitanLlama(**LLAMA), TRN2, "-m torchtitan.train --module graph_trainer.llama3 --config llama3_8b --training.steps 10000"),
    ],
    ids=["lora", "lora-llama", "torchtitan", "torchtitan-llama"],
)  # fmt: skip
def test_commands(job: Job, on: SlurmCluster, command: str, tmp_path: Path) -> None:
    files = render(job, on, "t").files
    text = files["node.sh"].decode()
    if isinstance(job, Lora):
        steps = f"steps={job.run_steps or -1}\n", f"  steps={job.run_steps or 5}\n"
        assert steps[1] in text.partition(steps[0])[2], "a few steps compile every graph"
    lines = text.partition("command=(\n")[2].partition("\n)\n")[0].splitlines()
    assert command in " ".join(line.strip() for line in lines)
    for name in ("node.sh", "prepare.sh"):
        (tmp_path / name).write_bytes(files[name])
        found = subprocess.run(
            [SHELLCHECK, "-s", "bash", "-e", "SC1090,SC1091,SC2154,SC2034,SC2016", tmp_path / name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.stdout == ""


@pytest.mark.parametrize(("kind", "each", "copies"), [("trn1.32xlarge", 8, 16), ("trn2.48xlarge", 4, 64)])
def test_a_global_batch_comes_from_model_copies(kind: str, each: int, copies: int) -> None:
    submission = render(Lora(nodes=4), cluster(kind, **XLA), "t")
    batch = submission.plan.batch
    assert batch
    assert (batch.per_worker, batch.accumulation, batch.data_parallel, batch.global_size) == (1, 8, copies, 8 * copies)
    assert f"--tensor_parallel_size {each} ".encode() in submission.files["node.sh"]
    assert any(f"adapters in {each} shards" in note for note in submission.plan.notes)


@pytest.mark.parametrize(
    ("job", "on", "message"),
    [
        (Lora(), make_cluster(), r"lora runs with Neuron SDK releases from 2\.26\.1 on and before 2\.27\.0, but .* has 2\.28\.1"),
        (Lora(model="llama3.1-8b"), TRN1, "meta-llama/Llama-3.1-8B is gated.*--weights; or use --model qwen3-8b"),
        (Lora(), cluster("trn1.2xlarge", **XLA), "8 NeuronCores, but trn1.2xlarge has 2"),
        (Lora(), cluster("trn3.48xlarge", **XLA), "lora runs on trn1, trn1n, trn2, but queue compute1 has trn3.48xlarge"),
        (TorchTitan(), TRN2, "ref is not given.*git ls-remote"),
        (TorchTitan(ref=REF, precompile=True), TRN2, "cannot precompile: TorchNeuron compiles while it runs"),
        (TorchTitan(ref=REF), TRN1, "runs on trn2, trn2u, trn3, but queue compute1 has trn1.32xlarge"),
        (TorchTitanLlama(ref=REF), TRN2, "module and config are not given.*tutorial-simple-fsdp-training.*--module and --config"),
        (TorchTitanLlama(**{**LLAMA, "assets": None}), TRN2, "assets is not given: the tokenizer of Llama 3.1 is gated"),
        (TorchTitanLlama(**{**LLAMA, "ref": None}), TRN2, "ref is not given"),
    ],
)  # fmt: skip
def test_impossible_jobs_are_refused(job: Job, on: SlurmCluster, message: str) -> None:
    with pytest.raises(JobError, match=message):
        render(job, on, "t")


@pytest.mark.parametrize("field", ["module", "config"])
def test_names_of_configurations_are_validated(field: str) -> None:
    with pytest.raises(JobError, match=rf"{field} is '\$\(id\)'"):
        TorchTitanLlama(**{**LLAMA, field: "$(id)"})


def test_aws_statements_on_the_release_are_in_the_plan() -> None:
    """Fine-tuning runs on a release whose PyTorch AWS no longer supports."""
    notes = [note for note in render(Lora(), TRN1, "t").plan.notes if "AWS" in note]
    assert re.search(r"AWS does not support this: .*PyTorch 2\.8 are now End of Life.*2026-04-09", notes[0])
