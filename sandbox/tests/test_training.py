"""The small training that replaces the vendor's: real sums over real processes, with the real command lines."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import datasets, processes
from sandbox.archives import unpack
from sandbox.slurm import LocalSlurm
from sandbox.testing import need_slurm
from sandbox.training.fakes import bert, nxdt, torchrun
from sandbox.training.fakes.trainer import TrainingFailed

LOG = re.compile(r"LOG \w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} - \((\d+), (\d+)\) step_loss : (\d+\.\d{4}) learning_rate : (\d\.\d\de-\d\d) throughput : (\d+\.\d\d) ")  # fmt: skip
BERT = "~/samples/torch-neuronx/training/dp_bert_hf_pretrain"
LAUNCH = """#!/bin/bash
set -o pipefail
. ~/aws_neuron_venv_pytorch/bin/activate
cd {folder}
MASTER=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
export NEURON_CC_FLAGS="--cache_dir=$HOME/neuron_cache/{cache}/$(hostname)"
torchrun --nproc_per_node 32 --nnodes $SLURM_NTASKS --node_rank $SLURM_NODEID --master_addr $MASTER --master_port 2022 \\
  {script} "$@" |& tee {cache}.$SLURM_NODEID.log
"""


# --- the parts ---------------------------------------------------------------------------------------------------------


COMMANDS = {
    "phase 1, AdamW": (
        bert,
        "--output_dir output_7 --steps_this_run 28125 --metrics_file output_7/results.json --batch_size=16 "
        "--grad_accum_usteps=2",
    ),
    "phase 1, LAMB": (
        bert,
        "--optimizer LAMB --lr 6e-3 --output_dir output --max_steps 7032 --steps_this_run 5 "
        "--metrics_file output/results.json --batch_size=16 --grad_accum_usteps=8",
    ),
    "phase 2": (
        bert,
        "--optimizer=AdamW_FP32ParamsCopy --output_dir output --lr 2.8e-4 --phase2 --resume_ckpt --resume_ckpt_path "
        "../ckpt_28125.pt --phase1_end_step 28125 --batch_size 2 --max_pred_len 80 --data_dir ~/examples_datasets/ "
        "--metrics_file results.json --grad_accum_usteps 512 --max_steps 1563 --steps_this_run 1563 --warmup_steps 781 "
        "--expected_average_throughput 0.0 --enable_pt_autocast",
    ),
    "torchrun": (
        torchrun,
        "--nproc_per_node 32 --nnodes 16 --node_rank 3 --master_addr compute1-dy-queue1-i1-1 --master_port 2022 "
        "script.py --lr 1",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_vendors_command_lines_are_understood(name: str) -> None:
    module, line = COMMANDS[name]
    module.parser().parse_args(shlex.split(line))


def test_a_misspelt_option_is_an_error_as_it_is_for_the_vendor(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bert.main(["--grad_acum_usteps", "8"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --grad_acum_usteps 8" in capsys.readouterr().err


def test_log_lines_are_the_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "asctime", lambda: "Wed Dec 21 00:12:27 2022")
    assert bert.log_line(0, 14, 11.25, 2.8e-6, 6497.86, None) == (
        "LOG Wed Dec 21 00:12:27 2022 - (0, 14) step_loss : 11.2500 learning_rate : 2.80e-06 throughput : 6497.86 "
    )
    assert nxdt.progress(2, 62, 6.93, 16, 0.108, 8.6, 2.73e-5) == (
        "Epoch 0:   3%|          | 2/62 [00:10<00:10,  1.00it/s, v_num=0, reduced_train_loss=6.930, lr=2.73e-05, global_step=1.000, "
        "consumed_samples=16.00, throughput=0.108, throughput_peak=0.108, gradient_norm=8.600]"
    )


def test_learning_rates_follow_the_requested_schedules() -> None:
    assert bert.learning_rate(14, 4e-4, 2000, 28125) == pytest.approx(2.8e-6)
    assert bert.learning_rate(2000, 4e-4, 2000, 28125) == pytest.approx(4e-4)
    assert bert.learning_rate(28125, 4e-4, 2000, 28125) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trainer.max_stepz=3"], "Could not override 'trainer.max_stepz'. Key 'max_stepz' is not in struct"),
        (["+x=1"], "Could not override '+x'"),
        (["trainer.max_steps"], "Error parsing override 'trainer.max_steps'"),
        (["--train-iters=3"], "unrecognized arguments: train-iters"),
        (["--config-name=other"], "Cannot find primary config 'other'"),
    ],
)
def test_overrides_that_hydra_refuses(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(nxdt.__file__).parents[1] / "repositories/neuronx-distributed-training/examples")
    with pytest.raises(TrainingFailed, match=re.escape(message)):
        nxdt.configuration(arguments)


# --- on virtual nodes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need_slurm()
    resource = {"Name": "queue1-i1", "InstanceType": "trn1.32xlarge", "MaxCount": "4"}
    queue = {"Name": "compute1", "ComputeResources": [resource]}
    config = {"Scheduling": {"SlurmQueues": [queue]}}
    quick = {"TRN_SANDBOX_STEP_SECONDS": "0.01"}
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), config, environment=quick) as running:
        home = Path(running.node_env()["HOME"])
        data = home / "examples_datasets"
        with tarfile.open(fileobj=io.BytesIO(datasets.bert_tar(128, shards=128))) as tar:
            unpack(tar, data)
        (data / "gpt2").mkdir()
        for name, content in datasets.gpt_files().items():
            (data / "gpt2" / name).write_bytes(content)
        for name, content in {"gpt2-vocab.json": b"{}", "gpt2-merges.txt": b""}.items():
            (data / "gpt2" / name).write_bytes(content)
        for name, folder in (("aws-neuron-samples", "samples"), ("neuronx-distributed-training", "nxdt")):
            address = f"https://github.com/aws-neuron/{name}.git"
            fetch = f"git init -q {folder}; cd {folder}; git fetch -q --depth 1 {address} $TRN_SAMPLES_REF; git checkout -q FETCH_HEAD"
            assert running.run(["bash", "-ec", fetch]).returncode == 0
        script = "dp_bert_large_hf_pretrain_hdf5.py"
        (home / "bert.sh").write_text(LAUNCH.format(folder=BERT, cache="bert", script=script))
        (home / "gpt.sh").write_text(
            LAUNCH.format(folder="~/nxdt/examples", cache="gpt", script="training_orchestrator.py")
        )
        yield running


def run(slurm: LocalSlurm, command: str, nodes: int = 4, check: bool = True, **env: str) -> tuple[int, list[str]]:
    """Run a command on nodes; returns the exit code and every line printed."""
    activated = f". ~/aws_neuron_venv_pytorch/bin/activate; srun -N{nodes} --ntasks-per-node=1 {command} 2>&1"
    done = slurm.run(["bash", "-c", activated], env=env, timeout=900)
    assert not check or done.returncode == 0, done.stdout
    return done.returncode, done.stdout.splitlines()


def bert_line(output: str, steps: int, *more: str) -> str:
    options = (
        f"--optimizer LAMB --lr 6e-3 --max_steps 7032 --batch_size=16 --grad_accum_usteps=4 --output_dir $HOME/{output}"
    )
    return f"bash bert.sh {options} --steps_this_run {steps} {' '.join(more)}"


def losses(lines: list[str]) -> dict[int, float]:
    return {int(found[2]): float(found[3]) for line in lines if (found := LOG.fullmatch(line))}


def checksums(lines: list[str]) -> set[str]:
    found = [line.split()[-1] for line in lines if "parameters sha256" in line]
    assert len(found) == 4, lines
    return set(found)


@pytest.mark.sweep
def test_precompile_then_train(slurm: LocalSlurm) -> None:
    home = Path(slurm.node_env()["HOME"])
    _, lines = run(slurm, "neuron_parallel_compile " + bert_line("trial", 5))
    assert sum(line.endswith("||NEURON_PARALLEL_COMPILE||: Total graphs: 6") for line in lines) == 4
    totals = [line for line in lines if "Total failed compilations: 0" in line]
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.000\d{3}:  \d+  INFO"
    assert all(
        re.fullmatch(rf"{stamp} \|\|NEURON_PARALLEL_COMPILE\|\|: Total failed compilations: 0", x) for x in totals
    )
    items = "Current remaining items are 0, locked are 0, failed are 0, done are 6, total is 6"
    assert sum(line.endswith(f"||NEURON_CACHE||: {items}") for line in lines) == 4
    assert losses(lines) == {}
    assert not (home / "trial").exists()
    for node in slurm.node_names:
        assert len(list((home / "neuron_cache/bert" / node).glob("neuronxcc-*/MODULE_*/model.neff"))) == 6

    _, lines = run(slurm, bert_line("out", 20))
    assert "4 processes, one per node, each doing the work of 32 workers" in "\n".join(lines)
    assert sum("Using a cached neff at" in line for line in lines) == 24
    assert not any("Call compiler with cmd" in line for line in lines)
    found = losses(lines)
    assert list(found) == list(range(1, 21))
    assert found[1] == pytest.approx(3.4657, abs=1e-3)  # ln 32: it knows nothing yet
    assert found[20] < found[10] < found[1] - 0.8
    assert len(checksums(lines)) == 1
    assert [file.name for file in (home / "out").iterdir()] == ["ckpt_20.pt"]


@pytest.mark.sweep
def test_resuming_gives_the_same_parameters_as_never_stopping(slurm: LocalSlurm) -> None:
    _, straight = run(slurm, bert_line("straight", 25))
    run(slurm, bert_line("parts", 10))
    _, rest = run(slurm, bert_line("parts", 25, "--resume_ckpt", "--num_ckpts_to_keep -1"))
    assert list(losses(rest)) == list(range(11, 26))
    assert checksums(rest) == checksums(straight)
    kept = {file.name for file in (Path(slurm.node_env()["HOME"]) / "parts").iterdir()}
    assert kept == {"ckpt_10.pt", "ckpt_20.pt", "ckpt_25.pt"}


@pytest.mark.parametrize(
    ("command", "env", "message"),
    [
        (f"neuron_parallel_compile {bert_line('f', 5, '--batch_size 8')}", {"TRN_SANDBOX_FAIL": "precompile"}, "parallel compilation with neuronx-cc exited with error.Received error code: -9"),
        (bert_line("f", 20), {"TRN_SANDBOX_FAIL": "train@7"}, "RuntimeError: injected fault at step 7 on node"),
        (bert_line("f", 5, "--data_dir /nowhere"), {}, "ERROR: Data directory /nowhere doesn't exist!"),
        (bert_line("f", 5, "--resume_ckpt"), {}, "Make sure there are ckpt_*.pt files in"),
        (bert_line("f", 5, "--no_such_flag"), {}, "unrecognized arguments: --no_such_flag"),
        ("neuron_parallel_compile no-such-command", {}, "cannot run no-such-command: No such file or directory"),
    ],
    ids=["precompile", "train", "data", "resume", "flag", "command"],
)  # fmt: skip
@pytest.mark.sweep
def test_errors_end_with_an_exit_code_and_a_reason(
    slurm: LocalSlurm, command: str, env: dict[str, str], message: str
) -> None:
    code, lines = run(slurm, command, check=False, **env)
    printed_text = "\n".join(lines)
    assert code != 0
    assert message in printed_text
    assert "Traceback" not in printed_text
    assert list(Path(slurm.node_env()["HOME"]).glob("f/*")) == []


@pytest.mark.sweep
def test_two_jobs_may_use_the_same_port_at_once_and_cancelling_ends_one(slurm: LocalSlurm) -> None:
    home = Path(slurm.node_env()["HOME"])
    for name, steps, hold in (("long", 5000, f"100:{home / 'never'}"), ("short", 5, "")):
        job = slurm.run(
            ["sbatch", "--parsable", "-N2", f"-o{name}.out", f"--wrap=srun -N2 {bert_line(name, steps)}"],
            env={"TRN_SANDBOX_STEP_SECONDS": "0.01", "TRN_SANDBOX_HOLD": hold},
        )
        assert job.returncode == 0, job.stderr
        if name == "long":
            number = job.stdout.strip()
            assert processes.wait_until(lambda: any((home / "long").glob("ckpt_*.pt")), 600), (
                home / "long.out"
            ).read_text()
    assert processes.wait_until(lambda: (home / "short/ckpt_5.pt").exists(), 600), (home / "short.out").read_text()
    slurm.run(["scancel", number])

    def ended() -> bool:
        return slurm.run(["squeue", "-h", "-j", number, "--states=all", "-o", "%T"]).stdout.strip() == "CANCELLED"

    assert processes.wait_until(ended, 600, 0.1)
    assert "parameters sha256" not in (home / "long.out").read_text()


@pytest.mark.sweep
def test_gpt_trains_and_resumes(slurm: LocalSlurm) -> None:
    gpt2 = Path(slurm.node_env()["HOME"]) / "examples_datasets/gpt2"
    overrides = {
        "trainer.devices": "32",
        "trainer.num_nodes": "4",
        "trainer.max_steps": "12",
        "exp_manager.explicit_log_dir": "$HOME/gpt",
        "exp_manager.checkpoint_callback_params.every_n_train_steps": "5",
        "data.data_prefix": f"[1.0,{gpt2}/my-gpt2_text_document]",
        "data.tokenizer.vocab_file": f"{gpt2}/gpt2-vocab.json",
        "data.tokenizer.merge_file": f"{gpt2}/gpt2-merges.txt",
    }

    def train(**changes: str) -> tuple[int, list[str]]:
        given = {**overrides, **{key.replace("__", "."): value for key, value in changes.items()}}
        line = " ".join(f"{key}={value}" for key, value in given.items())
        return run(slurm, f"bash gpt.sh --config-path=conf --config-name=megatron_gpt_config {line}", check=False)

    code, lines = train()
    assert code == 0, lines
    pattern = r"Epoch 0:.*reduced_train_loss=(\d\.\d{3}),.*global_step=(\d+)\.000,.*"
    found = [match for line in lines if (match := re.fullmatch(pattern, line))]
    assert [int(match[2]) for match in found] == list(range(12))
    assert float(found[-1][1]) < float(found[0][1]) - 0.5
    whole = checksums(lines)
    saved = Path(slurm.node_env()["HOME"]) / "gpt/checkpoints"
    assert [file.name for file in saved.iterdir()] == ["megatron_gpt--step=12-consumed_samples=12288.ckpt"]
    shutil.rmtree(saved)
    assert train(trainer__max_steps="10")[0] == 0
    code, lines = train()
    assert "at step 10" in "\n".join(lines)
    assert len([line for line in lines if re.fullmatch(pattern, line)]) == 2
    assert checksums(lines) == whole
    code, lines = train(data__global_batch_size="1023")
    assert code != 0
    assert (
        "global batch size (1023) is not divisible by micro batch size (1) times data parallel size (16)"
        in "\n".join(lines)
    )
