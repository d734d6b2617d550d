"""TorchTitan and fine-tuning: their presets, plans, and what is refused before it is sent."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.job_spec import job_id, job_spec
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import Finetune, Job, JobError, Script, TorchTitan

REF = "0123456789abcdef0123456789abcdef01234567"
XLA = {"neuron_release": "2.26.1", "neuron_driver": "2.24.7.0", "os": "ubuntu2204"}
NATIVE = {"neuron_release": "2.33.0", "neuron_driver": "2.31.7.0", "framework": "torch-native"}
LLAMA: dict[str, Any] = {
    "ref": REF,
    "module": "graph_trainer.llama3",
    "config": "llama3_8b",
    "assets": "/efs/it's llama",
}
QWEN: dict[str, Any] = {"ref": REF, "preset": "qwen3-8b"}


def cluster(kind: str = "trn1.32xlarge", **changes: Any) -> SlurmCluster:
    return make_cluster(fleet(kind), **changes)


TRN1, TRN2 = cluster(**XLA), cluster("trn2.48xlarge", **NATIVE)


@pytest.mark.parametrize(
    ("job", "on", "message"),
    [
        (Finetune(precompile=True), TRN2, "finetune cannot precompile: TorchNeuron compiles while it runs"),
        (Finetune(), TRN1, "finetune runs on trn2, trn2u, trn3, but queue compute1 has trn1.32xlarge"),
        (Finetune(model="meta-llama/Llama-3.1-8B"), TRN2, "Llama-3.1-8B is gated.*--env HF_TOKEN.*directory as --weights"),
        (TorchTitan(preset="qwen3-8b"), TRN2, "ref is not given.*git ls-remote"),
        (TorchTitan(**QWEN, precompile=True), TRN2, "cannot precompile: TorchNeuron compiles while it runs"),
        (TorchTitan(**QWEN), TRN1, "runs on trn2, trn2u, trn3, but queue compute1 has trn1.32xlarge"),
        (TorchTitan(**QWEN, tensor_parallel=3), TRN2, "64 NeuronCores, which do not divide by the tensor parallelism 3"),
        (TorchTitan(**QWEN, lnc=2), TRN1, "lnc is 2, but trn1.32xlarge of queue compute1 runs with 1. Remove it"),
        (TorchTitan(ref=REF, preset="llama3.1-8b"), TRN2, "meta-llama/Llama-3.1-8B is gated.*--env HF_TOKEN.*directory as --assets"),
        (TorchTitan(**{**LLAMA, "assets": None}), TRN2, "neither model nor assets is given.*Give --model OWNER/NAME or --assets DIRECTORY"),
        (TorchTitan(**{**LLAMA, "ref": None}), TRN2, "ref is not given"),
    ],
)  # fmt: skip
def test_impossible_jobs_are_refused(job: Job, on: SlurmCluster, message: str) -> None:
    with pytest.raises(JobError, match=message):
        plan(job, on)


@pytest.mark.parametrize("field", ["module", "config"])
def test_names_of_configurations_are_validated(field: str) -> None:
    with pytest.raises(JobError, match=rf"{field} is '\$\(id\)'"):
        TorchTitan(**{**LLAMA, field: "$(id)"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"preset": "gpt-5"},
            "there is no preset 'gpt-5'. Give --preset, one of qwen3-8b, llama3.1-8b, deepseek-v3-16b",
        ),
        ({"module": "llama3"}, "module is given without config. Give both, or --preset, one of qwen3-8b"),
        ({**QWEN, "override": ("--x",)}, "override is .*'--x'"),
        ({**QWEN, "model": "Qwen3"}, "model is 'Qwen3'"),
    ],
)
def test_a_preset_or_a_configuration_that_exists(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message):
        TorchTitan(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": "/efs/d", "dataset": "a/b"}, "data is /efs/d and dataset is a/b: give one of them"),
        ({"dataset": "a/b c d"}, "dataset is 'a/b c d'"),
        ({"model": "$(id)/x"}, "model is"),
    ],
)
def test_what_fine_tuning_does_not_take(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=re.escape(message)):
        Finetune(**fields)


@pytest.mark.parametrize(
    ("filename", "tasks", "message"),
    [
        ("run.sh", 1, "run.sh is not a .py file, and torchrun starts"),
        ("a.py", 2, "tasks_per_node is 2, and torchrun starts"),
    ],
)
def test_a_launcher_starts_python_scripts(filename: str, tasks: int, message: str) -> None:
    with pytest.raises(JobError, match=message):
        Script(filename=filename, content=b"1", tasks_per_node=tasks, launcher="torchrun")


def test_the_batch_of_a_fine_tuning() -> None:
    batch = plan(Finetune(nodes=2, batch_size=2, accumulation=4), TRN2).batch
    assert batch
    assert batch.global_size == 2 * 4 * 128


@pytest.mark.parametrize(
    ("preset", "label"), [("My_Qwen3.5", "torchtitan-my-qwen3.5"), ("a" * 28 + "_b", "torchtitan-" + "a" * 28)]
)
def test_any_preset_gives_ids_that_commands_take(preset: str, label: str) -> None:
    """`trn list` does not show others on Slurm, and --after and --resume-from refuse them."""
    id = job_id(TorchTitan(ref=REF, module="llama3", config="llama3_8b", model="a/b", preset=preset), "t")
    assert id == f"{label}-t"
    assert Finetune(name=label, after=id, resume_from=id).after == id


def test_presets_are_values_that_others_win_over() -> None:
    """Gated models are fetched with a token; a model that was fetched is not asked for again while training."""
    job = TorchTitan(ref=REF, preset="qwen3-8b-sft", steps=7, dataset="openai/gsm8k socratic")
    assert (job.label, job.cache_set) == ("torchtitan-qwen3-8b-sft", "torchtitan-qwen3-8b-sft")
    made = job_spec("a", plan(job, TRN2))
    fetched = [step.with_ for step in made.prepare if step.do in ("model", "dataset")]
    files = ("*.json", "*.model", "merges.txt", "*.safetensors")
    assert fetched == [{"model": "Qwen/Qwen3-8B", "patterns": files}, {"words": ("openai/gsm8k", "socratic")}]
    program = made.stages[-1].program
    assert program is not None
    assert ("--training.steps", "7") in zip(program.words, program.words[1:], strict=False)
    assert program.variables["HF_HUB_OFFLINE"] == "1"
    gated = TorchTitan(ref=REF, preset="llama3.1-8b", env={"HF_TOKEN": "hf_x"})
    assert job_spec("a", plan(gated, TRN2)).variables == {"HF_TOKEN": "hf_x"}


@pytest.mark.parametrize(("lnc", "cores"), [(None, 64), (1, 128), (2, 64)])
def test_logical_cores_decide_on_the_workers(lnc: int | None, cores: int) -> None:
    made = plan(TorchTitan(**QWEN, lnc=lnc), TRN2)
    assert (made.workers, made.fleet.lnc) == (cores, lnc or 0)


def test_aws_statements_on_the_release_are_in_the_plan() -> None:
    """Of a release whose PyTorch AWS no longer supports."""
    script = Script(filename="a.sh", content=b"true")
    notes = [note for note in plan(script, TRN1).notes if "AWS" in note]
    assert re.search(r"AWS does not support this: .*PyTorch 2\.8 are now End of Life.*2026-04-09", notes[0])
