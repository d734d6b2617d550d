"""Replaces NxD Training's `training_orchestrator.py` with its GPT configuration: the same overrides, files and progress bars."""

from __future__ import annotations

import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import compile_cache
from .collective import Collective
from .trainer import Trainer, TrainingFailed, extracting, load, out, run, save, workers

GRAPHS = 22
TOKENS_OF_A_SEQUENCE = 16
COMPILE_STEPS = 10

_CHECKPOINT = re.compile(r"megatron_gpt--step=(\d+)-consumed_samples=(\d+)\.ckpt")


class IndexedText:
    """The tokens of a memory-mapped Megatron data set: `<prefix>.bin` and its index `<prefix>.idx`."""

    def __init__(self, prefix: str):
        index, tokens = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
        try:
            head, self._raw = index.read_bytes(), tokens.read_bytes()
        except OSError as problem:
            raise TrainingFailed(f"cannot read the data set {prefix}: {problem}") from None
        if head[:9] != b"MMIDIDX\x00\x00" or len(head) < 34:
            raise TrainingFailed(f"{index} is not an index of a memory-mapped data set (magic number missing)")
        version, kind, sequences = struct.unpack_from("<QBQ", head, 9)
        if (version, kind) != (1, 8):
            raise TrainingFailed(f"{index}: version {version}, token type {kind}; expected 1 and 8 (16-bit tokens)")
        sizes = struct.unpack_from(f"<{sequences}i", head, 34)
        if sum(sizes) * 2 != len(self._raw):
            raise TrainingFailed(
                f"{tokens} has {len(self._raw)} bytes, its index has {sum(sizes) * 2}: download it again"
            )
        self._text = bytes(token & 255 for token in memoryview(self._raw).cast("H"))

    def block(self, sample: int, tokens: int) -> bytes:
        """`tokens` tokens for a sample's number; wraps around at the end of the text."""
        begin = sample * tokens % len(self._text)
        piece = self._text[begin : begin + tokens]
        return piece if len(piece) == tokens else (piece + self._text * (1 + tokens // len(self._text)))[:tokens]


def configuration(arguments: Sequence[str]) -> dict[str, str]:
    """The configuration with the overrides of a command line, by dotted key.

    Raises:
        TrainingFailed: an invalid override, or a key that is not in the configuration, which Hydra rejects too.
    """
    given = dict(part.removeprefix("--").partition("=")[::2] for part in arguments if part.startswith("--"))
    if unknown := given.keys() - {"config-path", "config-name"}:
        raise TrainingFailed(f"unrecognized arguments: {' '.join(sorted(unknown))}")
    file = Path(given.get("config-path", "conf")) / f"{given.get('config-name', 'megatron_gpt_config')}.yaml"
    if not file.is_file():
        raise TrainingFailed(f"Cannot find primary config '{file.stem}'")
    lines = (line.partition(": ") for line in file.read_text().splitlines() if line and not line.startswith("#"))
    values = {key: value for key, _, value in lines}
    for override in (part for part in arguments if not part.startswith("--")):
        key, equals, value = override.partition("=")
        if not equals:
            raise TrainingFailed(f"Error parsing override '{override}'")
        if key not in values:
            raise TrainingFailed(f"Could not override '{key}'. Key '{key.rpartition('.')[2]}' is not in struct")
        values[key] = value
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    given = sys.argv[1:] if arguments is None else arguments
    return run(lambda collective: _train(collective, configuration(given)))


def _numbers(values: dict[str, str], world: int) -> tuple[int, int, int]:
    """(global batch size, tensor parallelism, steps), with NxD Training's assertions."""
    tensor, micro = int(values["distributed_strategy.tensor_model_parallel_size"]), int(values["data.micro_batch_size"])
    batch = int(values["data.global_batch_size"])
    if int(values["trainer.devices"]) * int(values["trainer.num_nodes"]) != world:
        raise TrainingFailed(
            f"trainer.devices {values['trainer.devices']} x trainer.num_nodes {values['trainer.num_nodes']} is not {world} workers"
        )
    if world % tensor:
        raise TrainingFailed(f"world size ({world}) is not divisible by tensor parallel size ({tensor})")
    if batch % (micro * (world // tensor)):
        raise TrainingFailed(
            f"global batch size ({batch}) is not divisible by micro batch size ({micro}) times data parallel size ({world // tensor})"
        )
    steps = COMPILE_STEPS if os.environ.get("COMPILE") == "1" else int(values["trainer.max_steps"])
    return batch, tensor, steps


def _train(collective: Collective, values: dict[str, str]) -> None:
    trainer = Trainer(collective)
    trainer.introduce("training_orchestrator.py")
    world = collective.world * workers()
    batch, tensor, steps = _numbers(values, world)
    for key in ("vocab_file", "merge_file"):
        if not Path(values[f"data.tokenizer.{key}"]).is_file():
            raise TrainingFailed(f"{key} {values[f'data.tokenizer.{key}']} does not exist")
    prefix = re.fullmatch(r"\[1\.0, ?(.+)\]", values["data.data_prefix"])
    if prefix is None:
        raise TrainingFailed(f"data.data_prefix {values['data.data_prefix']} is not a list of a weight and a path")
    text = IndexedText(prefix[1])
    os.environ["NEURON_CC_FLAGS"] = f"{os.environ.get('NEURON_CC_FLAGS', '')} {values['compiler_flags']}"
    compile_cache.load({"script": "nxdt", "world": world, "tensor": tensor, "batch": batch}, GRAPHS)
    keep = os.environ.get("COMPILE") != "1" and not extracting()
    directory = Path(values["exp_manager.explicit_log_dir"]) / "checkpoints"
    every = int(values["exp_manager.checkpoint_callback_params.every_n_train_steps"])
    step = _resume(trainer, directory) if keep else 0
    begin = time.monotonic()
    while step < steps:
        loss, norm = trainer.step(step + 1, _blocks(text, collective, batch, step))
        step += 1
        if not trainer.is_root or not keep:
            continue
        seconds = (time.monotonic() - begin) / step
        out(progress(step, steps, loss, batch, batch / seconds, norm, float(values["model.optim.lr"])))
        if step % every == 0 or step == steps:
            _save(trainer, directory, step, batch)
    if keep:
        trainer.verify()


def progress(step: int, steps: int, loss: float, batch: int, speed: float, norm: float, rate: float) -> str:
    """The progress bar after a step, as NxD Training prints it; `global_step` counts from 0."""
    return (
        f"Epoch 0:  {step * 100 // steps:2d}%|          | {step}/{steps} [00:10<00:10,  1.00it/s, v_num=0, "
        f"reduced_train_loss={loss:.3f}, lr={rate:.2e}, global_step={step - 1:.3f}, consumed_samples={(step - 1) * batch:.2f}, "
        f"throughput={speed:.3f}, throughput_peak={speed:.3f}, gradient_norm={norm:.3f}]"
    )


def _blocks(text: IndexedText, collective: Collective, batch: int, step: int) -> Iterator[bytes]:
    """This process's part of the global batch, one block for each sequence."""
    for sample in range(step * batch + collective.rank, (step + 1) * batch, collective.world):
        yield text.block(sample, TOKENS_OF_A_SEQUENCE)


def _checkpoints(directory: Path) -> dict[int, Path]:
    return {int(m[1]): file for file in directory.glob("*.ckpt") if (m := _CHECKPOINT.fullmatch(file.name))}


def _save(trainer: Trainer, directory: Path, step: int, batch: int) -> None:
    """Save a checkpoint and delete the previous one (save_top_k is 1)."""
    before = _checkpoints(directory)
    file = directory / f"megatron_gpt--step={step}-consumed_samples={step * batch}.ckpt"
    save(file / "model" / "dp_rank_00_tp_rank_00_pp_rank_00.pt", trainer.model, {"step": step})
    for old in before.values():
        if old != file:
            shutil.rmtree(old)


def _resume(trainer: Trainer, directory: Path) -> int:
    """The step to continue from: the newest checkpoint's, else 0."""
    every = _checkpoints(directory)
    if not every:
        return 0
    step = max(every)
    if trainer.is_root:
        out(f"Resuming from checkpoint {every[step]} at step {step}")
    load(every[step] / "model" / "dp_rank_00_tp_rank_00_pp_rank_00.pt", trainer.model)
    return step
