"""Replaces the vendor's `dp_bert_large_hf_pretrain_hdf5.py`: the same command line, files and log lines."""

from __future__ import annotations

import argparse
import os
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import compile_cache
from .collective import Collective
from .trainer import (
    BYTES_OF_A_SEQUENCE,
    Throughput,
    Trainer,
    TrainingFailed,
    extracting,
    load,
    out,
    run,
    save,
    workers,
)

GRAPHS = 6
STEPS_OF_A_SHARD = 10
"""Steps until a worker continues with its next data file; checkpoints are written at these steps."""


def parser() -> argparse.ArgumentParser:
    """The options of the vendor's script, with its defaults."""
    made = argparse.ArgumentParser(prog="dp_bert_large_hf_pretrain_hdf5.py")
    dataset = "~/examples_datasets/bert_pretrain_wikicorpus_tokenized_hdf5_seqlen128/"
    made.add_argument("--data_dir", default=dataset)
    made.add_argument("--output_dir", default="./output")
    made.add_argument("--metrics_file", default="results.json")
    optimizers = ["AdamW", "AdamW_FP32OptimParams", "AdamW_FP32ParamsCopy", "LAMB"]
    made.add_argument("--optimizer", default="AdamW_FP32OptimParams", choices=optimizers)
    for name, default in (
        ("batch_size", 8),
        ("max_steps", 28125),
        ("steps_this_run", -1),
        ("shards_per_ckpt", 1),
        ("seed", 12349),
        ("seq_len", None),
        ("max_pred_len", 20),
        ("num_ckpts_to_keep", 1),
        ("resume_step", -1),
        ("warmup_steps", 2000),
        ("grad_accum_usteps", 64),
        ("phase1_end_step", 28125),
    ):
        made.add_argument(f"--{name}", type=int, default=default)
    made.add_argument("--lr", type=float, default=4e-4)
    made.add_argument("--expected_average_throughput", type=float, default=0.0)
    made.add_argument("--resume_ckpt_path")
    made.add_argument("--snapshot_step_list")
    made.add_argument("--snapshot_rank_list", default="0")
    made.add_argument("--snapshot_dump_dir", default="./snapshots")
    for switch in (
        "debug",
        "disable_dropout",
        "torch_xla_compile",
        "resume_ckpt",
        "minimal_ckpt",
        "enable_pt_autocast",
        "enable_fp32",
        "phase2",
        "print_grad_norm",
    ):
        made.add_argument(f"--{switch}", action="store_true")
    return made


def learning_rate(step: int, base: float, warmup: int, steps: int) -> float:
    """The learning rate after `step` steps: linear increase during `warmup`, then linear decrease to 0 at `steps`."""
    if step < warmup:
        return base * step / max(1, warmup)
    return base * max(0.0, (steps - step) / max(1, steps - warmup))


def log_line(epoch: int, step: int, loss: float, rate: float, throughput: float, norm: float | None) -> str:
    """The line of a step as the vendor's script prints it (including the trailing space)."""
    tail = f"grad-norm : {norm}" if norm is not None else ""
    return (
        f"LOG {time.asctime()} - ({epoch}, {step}) step_loss : {loss:.4f} learning_rate : {rate:.2e} "
        f"throughput : {throughput:.2f} {tail}"
    )


class Shards:
    """This process's part of the data set: for each of its workers, one file after another."""

    def __init__(self, directory: Path, world: int, rank: int, epoch: int):
        if not directory.is_dir():
            raise TrainingFailed(f"ERROR: Data directory {directory} doesn't exist!")
        self._files = sorted(directory.glob("*_training_*.hdf5"))
        every = world * workers()
        if not self._files:
            raise TrainingFailed(f"ERROR: There are no tokenized dataset shard files in {directory}")
        if every > len(self._files):
            raise TrainingFailed(
                f"ERROR: {every} workers need at least as many dataset shards in {directory}; there are {len(self._files)}"
            )
        random.Random(epoch).shuffle(self._files)  # noqa: S311  the same order on every process is the point
        self._every, self._first = every, rank * workers()
        self._texts: list[bytes] = []
        self._index = -1

    def blocks(self, index: int, step: int, micro_steps: int, batch_size: int) -> Iterator[bytes]:
        """The text for one step: a block for each worker and micro-step."""
        size = batch_size * BYTES_OF_A_SEQUENCE
        if index != self._index:
            self._index = index
            turn = index * self._every + self._first
            files = (self._files[(turn + worker) % len(self._files)] for worker in range(workers()))
            self._texts = [file.read_bytes() for file in files]
        for text in self._texts:
            if len(text) < 2:
                raise TrainingFailed("ERROR: a dataset shard is empty; download the data set again")
            double = text * (2 + size // len(text))
            for micro in range(micro_steps):
                begin = ((step * micro_steps + micro) * size) % len(text)
                yield double[begin : begin + size]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    flags = parser().parse_args(arguments)
    if flags.steps_this_run < 0:
        flags.steps_this_run = flags.max_steps
    if min(flags.batch_size, flags.grad_accum_usteps) < 1:
        print(f"ERROR: --batch_size {flags.batch_size} and --grad_accum_usteps {flags.grad_accum_usteps} must be >= 1")
        return 1
    os.environ["NEURON_CC_FLAGS"] = os.environ.get("NEURON_CC_FLAGS", "") + " --model-type=transformer"
    return run(lambda collective: _train(collective, flags))


def _train(collective: Collective, flags: argparse.Namespace) -> None:
    trainer = Trainer(collective)
    trainer.introduce("dp_bert_large_hf_pretrain_hdf5.py")
    if trainer.is_root:
        out("--------TRAINING CONFIG----------")
        out(str(flags))
        out("---------------------------------")
    world = collective.world * workers()
    _model_files()
    names = ("batch_size", "grad_accum_usteps", "optimizer", "max_pred_len", "print_grad_norm", "debug")
    shape = {"script": "dp_bert", "world": world, **{name: getattr(flags, name) for name in names}}
    compile_cache.load(shape, GRAPHS)
    step, epoch, kept = 0, 0, _Kept(flags)
    if flags.resume_ckpt:
        file, step = _checkpoint_to_resume(flags)
        out(f"Worker {collective.rank} resuming from checkpoint {file} at step {step}")
        epoch = int(load(file, trainer.model)["epoch"])
        step -= flags.phase1_end_step if flags.phase2 else 0
    shards = Shards(Path(flags.data_dir).expanduser(), collective.world, collective.rank, epoch)
    throughput = Throughput(flags.batch_size * world * flags.grad_accum_usteps)
    begin = time.monotonic()
    while step < flags.steps_this_run:
        index = step // STEPS_OF_A_SHARD
        blocks = shards.blocks(index, step, flags.grad_accum_usteps, flags.batch_size)
        loss, norm = trainer.step(step + 1, blocks)
        step += 1
        if not trainer.is_root or extracting():
            continue
        rate = learning_rate(step, flags.lr, flags.warmup_steps, flags.max_steps)
        speed = throughput.next()
        out(log_line(epoch, step, loss, rate, speed, norm if flags.print_grad_norm else None))
        shard_ends = step % (STEPS_OF_A_SHARD * flags.shards_per_ckpt) == 0
        if shard_ends or step >= flags.steps_this_run:
            micro_steps = step * flags.grad_accum_usteps
            out(
                f"Epoch {epoch} step {step} file index {index} end {time.asctime()} loss {loss} perf {speed} seq/sec "
                f"(at train microstep {micro_steps} time {time.monotonic() - begin:.1f} from beginning time 0)"
            )
            kept.save(trainer, step, epoch)
    if not extracting():
        trainer.verify()


def _model_files() -> None:
    """The files of bert-large-uncased that the vendor's script loads; offline, they must be in Hugging Face's cache."""
    if os.environ.get("HF_HUB_OFFLINE") != "1":
        return
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    there = {file.name for file in home.glob("hub/models--bert-large-uncased/snapshots/*/*")}
    if absent := {"config.json", "pytorch_model.bin"} - there:
        raise TrainingFailed(
            f"OSError: bert-large-uncased does not appear to have a file named {sorted(absent)[0]} in {home}"
        )


class _Kept:
    """Checkpoints of this run; the oldest are deleted beyond the number to keep."""

    def __init__(self, flags: argparse.Namespace):
        self._flags = flags
        self._files: list[Path] = []

    def save(self, trainer: Trainer, step: int, epoch: int) -> None:
        number = step + (self._flags.phase1_end_step if self._flags.phase2 else 0)
        file = Path(self._flags.output_dir) / f"ckpt_{number}.pt"
        out("Checkpointing...")
        save(file, trainer.model, {"step": number, "epoch": epoch})
        out("Checkpointing done...")
        self._files.append(file)
        keep = self._flags.num_ckpts_to_keep
        while 0 <= keep < len(self._files):
            old = self._files.pop(0)
            out(f"Keeping only {keep} checkpoints. Deleting {old}")
            old.unlink(missing_ok=True)


def _checkpoint_to_resume(flags: argparse.Namespace) -> tuple[Path, int]:
    """The checkpoint on the command line, else the last one in the output directory; and its step."""
    directory = Path(flags.output_dir)
    if flags.resume_ckpt_path:
        file = Path(flags.resume_ckpt_path)
    elif flags.resume_step >= 0 and not flags.phase2:
        file = directory / f"ckpt_{flags.resume_step}.pt"
    else:
        found = {step: file for file in directory.glob("ckpt_*.pt") if (step := _step(file)) is not None}
        if not found:
            raise TrainingFailed(f"Make sure there are ckpt_*.pt files in {directory}")
        file = found[max(found)]
    step = _step(file)
    if step is None or not file.exists():
        raise TrainingFailed(f"Checkpoint path passed to resume_ckpt_path option is not a path: {file}")
    return file, step


def _step(file: Path) -> int | None:
    found = re.fullmatch(r"ckpt_(\d+)\.pt", file.name)
    return int(found[1]) if found else None
