"""TorchTitan and fine-tuning: the command that each node runs, and what is refused before it is sent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.conftest import described, fleet, make_cluster
from tests.support import SHELLCHECK, completed
from trainium_cdk.jobs import Finetune, Job, JobError, Script, TorchTitan
from trainium_cdk.jobs.slurm.render import render
from trainium_cdk.outputs import SlurmCluster

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


COMMANDS = yaml.safe_load(Path(__file__).with_name("commands.yaml").read_text("utf-8"))


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(case: str, tmp_path: Path) -> None:
    told = COMMANDS[case]
    job = described(**told["job"])
    files = render(job, {"trn1": TRN1, "trn2": TRN2}[told["cluster"]], "t").files
    text = files["node.sh"].decode()
    lines = text.partition("command=(\n")[2].partition("\n)\n")[0].splitlines()
    assert told["command"] in " ".join(line.strip() for line in lines)
    for name in ("node.sh", "prepare.sh")[: 1 + job.PREPARES]:
        (tmp_path / name).write_bytes(files[name])
        script = files[name].decode()
        assert set(re.findall(r"\$(\w+_ref)\b", script)) <= set(re.findall(r"\b(\w+_ref)=", script)), "commits"
        found = completed([SHELLCHECK, "-s", "bash", "-e", "SC1090,SC1091,SC2154,SC2034,SC2016", tmp_path / name])
        assert found.stdout == ""


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
        render(job, on, "t")


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


def test_fine_tuning_goes_on_from_its_newest_checkpoint() -> None:
    files = render(Finetune(nodes=2), TRN2, "t").files
    assert (
        'TRN_CHECKPOINT=$(newest_trainer_checkpoint "$job/output")\nexport TRN_CHECKPOINT'
        in files["train.sbatch"].decode()
    )
    assert 'resume=(--resume_from_checkpoint "$TRN_CHECKPOINT")' in files["node.sh"].decode()
    batch = render(Finetune(nodes=2, batch_size=2, accumulation=4), TRN2, "t").plan.batch
    assert batch
    assert batch.global_size == 2 * 4 * 128


@pytest.mark.parametrize(
    ("preset", "label"), [("My_Qwen3.5", "torchtitan-my-qwen3.5"), ("a" * 28 + "_b", "torchtitan-" + "a" * 28)]
)
def test_any_preset_gives_ids_that_commands_take(preset: str, label: str) -> None:
    """`trn list` does not show others on Slurm, and --after and --resume-from refuse them."""
    id = render(TorchTitan(ref=REF, module="llama3", config="llama3_8b", model="a/b", preset=preset), TRN2, "t").id
    assert id == f"{label}-t"
    assert Finetune(name=label, after=id, resume_from=id).after == id


def test_presets_are_values_that_others_win_over() -> None:
    """Gated models are fetched with a token; a model that was fetched is not asked for again while training."""
    job = TorchTitan(ref=REF, preset="qwen3-8b-sft", steps=7, dataset="openai/gsm8k socratic")
    assert (job.label, job.cache_set) == ("torchtitan-qwen3-8b-sft", "torchtitan-qwen3-8b-sft")
    files = render(job, TRN2, "t").files
    prepare, node = files["prepare.sh"].decode(), files["node.sh"].decode()
    assert "hugging_face Qwen/Qwen3-8B '*.json' '*.model' merges.txt '*.safetensors'" in prepare
    assert "hugging_face_data openai/gsm8k socratic\n" in prepare
    assert "--training.steps 7\n" in node
    assert "export HF_HUB_OFFLINE=1\n" in node
    gated = TorchTitan(ref=REF, preset="llama3.1-8b", env={"HF_TOKEN": "hf_x"})
    assert "export HF_TOKEN=hf_x\n" in render(gated, TRN2, "t").files["prepare.sh"].decode()


@pytest.mark.parametrize(("lnc", "cores"), [(None, 64), (1, 128), (2, 64)])
def test_logical_cores_decide_on_the_workers(lnc: int | None, cores: int) -> None:
    plan = render(TorchTitan(**QWEN, lnc=lnc), TRN2, "t").plan
    assert (plan.workers, plan.fleet.lnc) == (cores, lnc or 0)


def test_aws_statements_on_the_release_are_in_the_plan() -> None:
    """Of a release whose PyTorch AWS no longer supports."""
    script = Script(filename="a.sh", content=b"true")
    notes = [note for note in render(script, TRN1, "t").plan.notes if "AWS" in note]
    assert re.search(r"AWS does not support this: .*PyTorch 2\.8 are now End of Life.*2026-04-09", notes[0])
