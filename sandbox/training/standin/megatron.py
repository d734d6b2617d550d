"""In place of `pretrain_gpt.py` of the Neuron reference for Megatron-LM: its command line, its files, its log lines."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import compile_cache
from .collective import Collective
from .trainer import Trainer, TrainingFailed, extracting, load, out, run, save, workers

GRAPHS = 26
TOKENS_OF_A_SEQUENCE = 16

_NUMBERS: dict[str, int | None] = {
    "tensor-model-parallel-size": 1,
    "pipeline-model-parallel-size": 1,
    "num-layers": None,
    "hidden-size": None,
    "ffn-hidden-size": None,
    "num-attention-heads": None,
    "seq-length": None,
    "max-position-embeddings": None,
    "micro-batch-size": 1,
    "global-batch-size": None,
    "train-iters": None,
    "lr-decay-iters": None,
    "lr-warmup-iters": 0,
    "log-interval": 100,
    "exit-interval": None,
    "tensorboard-log-interval": 1,
    "eval-interval": 1000,
    "eval-iters": 100,
    "save-interval": None,
    "seed": 1234,
    "num-workers": 2,
    "make-vocab-size-divisible-by": 128,
    "activations-checkpoint-num-layers": 1,
}
_RATIOS: dict[str, float | None] = {
    "lr": None,
    "min-lr": 0.0,
    "lr-warmup-fraction": None,
    "weight-decay": 0.01,
    "clip-grad": 1.0,
    "adam-beta1": 0.9,
    "adam-beta2": 0.999,
    "adam-eps": 1e-8,
    "attention-dropout": 0.1,
    "hidden-dropout": 0.1,
    "init-method-std": 0.02,
    "layernorm-epsilon": 1e-5,
}
_WORDS: dict[str, str | None] = {
    "data-impl": "infer",
    "split": "969, 30, 1",
    "vocab-file": None,
    "merge-file": None,
    "distributed-backend": "nccl",
    "lr-decay-style": "linear",
    "save": None,
    "save-xser": None,
    "load": None,
    "load-xser": None,
    "tensorboard-dir": None,
    "tokenizer-type": None,
    "optimizer": "adam",
    "activations-checkpoint-method": None,
    "dataloader-type": None,
    "DDP-impl": "local",
}
_SWITCHES = (
    "no-masked-softmax-fusion",
    "no-bias-gelu-fusion",
    "no-bias-dropout-fusion",
    "no-async-tensor-model-parallel-allreduce",
    "no-contiguous-buffers-in-local-ddp",
    "no-query-key-layer-scaling",
    "use-cpu-initialization",
    "checkpoint-activations",
    "log-params-norm",
    "log-num-zeros-in-grad",
    "log-timers-to-tensorboard",
    "log-batch-size-to-tensorboard",
    "attention-softmax-in-fp32",
    "no-save-optim",
    "no-save-rng",
    "no-load-optim",
    "no-load-rng",
    "finetune",
    "keep-last-checkpoint-only",
    "override-lr-scheduler",
    "use-checkpoint-lr-scheduler",
    "mmap-warmup",
    "fp16",
    "bf16",
)


def parser() -> argparse.ArgumentParser:
    """The options of the vendor's script that its GPT-3 examples use, and their neighbours, with its defaults."""
    made = argparse.ArgumentParser(prog="pretrain_gpt.py", allow_abbrev=False)
    for name, number in _NUMBERS.items():
        made.add_argument(f"--{name}", type=int, default=number)
    for name, ratio in _RATIOS.items():
        made.add_argument(f"--{name}", type=float, default=ratio)
    for name, word in _WORDS.items():
        made.add_argument(f"--{name}", default=word)
    for name in _SWITCHES:
        made.add_argument(f"--{name}", action="store_true")
    made.add_argument("--data-path", nargs="*")
    return made


def learning_rate(step: int, flags: argparse.Namespace) -> float:
    """The schedule's value at a step: a linear rise, then a constant, a line or half a cosine down to --min-lr."""
    decay = flags.lr_decay_iters or flags.train_iters
    fraction = flags.lr_warmup_fraction
    warmup = fraction * decay if fraction is not None else flags.lr_warmup_iters
    if warmup > 0 and step <= warmup:
        return float(flags.lr * step / warmup)
    if flags.lr_decay_style == "constant":
        return float(flags.lr)
    share = min(1.0, (step - warmup) / max(1.0, decay - warmup))
    left = (math.cos(math.pi * share) + 1) / 2 if flags.lr_decay_style == "cosine" else 1 - share
    return float(flags.min_lr + left * (flags.lr - flags.min_lr))


def log_line(
    step: int, steps: int, samples: int, elapsed_ms: float, rate: float, batch: int, loss: float, norm: float
) -> str:
    """One iteration as the vendor's script prints it; throughput is in sequences per second."""
    return (
        f" iteration {step:8d}/{steps:8d} | consumed samples: {samples:12d} | "
        f"elapsed time per iteration (ms): {elapsed_ms:.1f} | learning rate: {rate:.3E} | "
        f"global batch size: {batch:5d} | lm loss: {loss:.6E} | grad norm: {norm:.3f} | "
        f"throughput: {batch * 1000 / elapsed_ms:.3f} |"
    )


class IndexedText:
    """The tokens of a memory-mapped Megatron data set: `<prefix>.bin` and its index `<prefix>.idx`."""

    def __init__(self, prefix: str):
        index, tokens = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
        try:
            head, self._raw = index.read_bytes(), tokens.read_bytes()
        except OSError as problem:
            raise TrainingFailed(f"cannot read the data set {prefix}: {problem}") from None
        if head[:9] != b"MMIDIDX\x00\x00" or len(head) < 34:
            raise TrainingFailed(f"{index} is no index of a memory-mapped data set (magic number missing)")
        version, kind, sequences = struct.unpack_from("<QBQ", head, 9)
        if (version, kind) != (1, 8):
            raise TrainingFailed(f"{index}: version {version}, token type {kind}; expected 1 and 8 (16-bit tokens)")
        sizes = struct.unpack_from(f"<{sequences}i", head, 34)
        if sum(sizes) * 2 != len(self._raw):
            raise TrainingFailed(
                f"{tokens} has {len(self._raw)} bytes, its index says {sum(sizes) * 2}: fetch it again"
            )
        self._text = bytes(token & 255 for token in memoryview(self._raw).cast("H"))

    def block(self, sample: int, tokens: int) -> bytes:
        """`tokens` tokens for a sample's number, round and round through the text."""
        begin = sample * tokens % len(self._text)
        piece = self._text[begin : begin + tokens]
        return piece if len(piece) == tokens else (piece + self._text * (1 + tokens // len(self._text)))[:tokens]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with the reason on the error output."""
    flags = parser().parse_args(arguments)
    return run(lambda collective: _train(collective, flags))


def _check(flags: argparse.Namespace, world: int) -> int:
    """What the vendor's script asserts of its arguments; returns the data-parallel size."""
    model_parallel = flags.tensor_model_parallel_size * flags.pipeline_model_parallel_size
    needed = ("num_layers", "hidden_size", "num_attention_heads", "seq_length", "train_iters", "lr", "data_path")
    for name in needed:
        assert getattr(flags, name) is not None, f"{name} argument is None"  # noqa: S101
    assert world % model_parallel == 0, (  # noqa: S101
        f"world size ({world}) is not divisible by tensor parallel size ({flags.tensor_model_parallel_size}) times "
        f"pipeline parallel size ({flags.pipeline_model_parallel_size})"
    )
    parallel: int = world // model_parallel
    step = flags.micro_batch_size * parallel
    flags.global_batch_size = flags.global_batch_size or step
    assert flags.global_batch_size % step == 0, (  # noqa: S101
        f"global batch size ({flags.global_batch_size}) is not divisible by micro batch size "
        f"({flags.micro_batch_size}) times data parallel size ({parallel})"
    )
    helpers = list(Path("megatron/data").glob("helpers*.so"))
    assert helpers, "cannot import name 'helpers' from 'megatron.data': run make in megatron/data"  # noqa: S101
    for name in ("vocab_file", "merge_file"):
        file = getattr(flags, name)
        assert file is None or Path(file).expanduser().exists(), f"{name} {file} does not exist"  # noqa: S101
    return parallel


def _train(collective: Collective, flags: argparse.Namespace) -> None:
    trainer = Trainer(collective)
    trainer.introduce("pretrain_gpt.py")
    world = collective.world * workers()
    parallel = _check(flags, world)
    if trainer.is_root:
        out(
            f"using world size: {world}, data-parallel-size: {parallel}, "
            f"tensor-model-parallel size: {flags.tensor_model_parallel_size}, "
            f"pipeline-model-parallel size: {flags.pipeline_model_parallel_size}"
        )
        out("------------------------ arguments ------------------------")
        for name, value in sorted(vars(flags).items()):
            out(f"  {name} {'.' * (48 - len(name))} {value}")
        out("-------------------- end of arguments ---------------------")
    names = (*_NUMBERS, "optimizer", "clip-grad")
    same = {"train-iters", "save-interval", "eval-iters", "eval-interval", "log-interval", "exit-interval"}
    shape = {name: getattr(flags, name.replace("-", "_")) for name in names if name not in same}
    compile_cache.load({"script": "pretrain_gpt", "world": world, **shape}, GRAPHS)
    text = IndexedText(os.path.expanduser(flags.data_path[-1]))  # noqa: PTH111  a prefix of names, not a file
    step = _resume(trainer, flags)
    target = flags.save_xser or flags.save
    last = time.monotonic()
    while step < flags.train_iters:
        loss, norm = trainer.step(step + 1, _blocks(text, collective, flags.global_batch_size, step))
        step += 1
        now = time.monotonic()
        if trainer.is_root and not extracting() and step % flags.log_interval == 0:
            elapsed = (now - last) * 1000 / flags.log_interval
            batch = flags.global_batch_size
            out(log_line(step, flags.train_iters, step * batch, elapsed, learning_rate(step, flags), batch, loss, norm))
            last = now
        whole = flags.save_interval is not None and step % flags.save_interval == 0
        if trainer.is_root and target and not extracting() and (whole or step == flags.train_iters):
            _save(trainer, Path(target), step, only=flags.keep_last_checkpoint_only)
        if flags.exit_interval and step % flags.exit_interval == 0:
            break
    if trainer.is_root:
        out(f"[after training is done] iteration {step}")
    if not extracting():
        trainer.verify()


def _blocks(text: IndexedText, collective: Collective, batch: int, step: int) -> Iterator[bytes]:
    """This process's share of the global batch, one block a sequence."""
    for sample in range(step * batch + collective.rank, (step + 1) * batch, collective.world):
        yield text.block(sample, TOKENS_OF_A_SEQUENCE)


def _save(trainer: Trainer, directory: Path, step: int, only: bool) -> None:
    out(f"saving checkpoint at iteration {step:7d} to {directory}")
    save(directory / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt", trainer.model, {"iteration": step})
    part = directory / "latest_checkpointed_iteration.part"
    part.write_text(str(step))
    part.replace(part.with_suffix(".txt"))
    for old in directory.glob("iter_*") if only else ():
        if old.name != f"iter_{step:07d}":
            shutil.rmtree(old)


def _resume(trainer: Trainer, flags: argparse.Namespace) -> int:
    """The iteration to go on from: 0 where --load names nothing, or a directory without a checkpoint."""
    source = flags.load_xser or flags.load
    if not source:
        return 0
    note = Path(source) / "latest_checkpointed_iteration.txt"
    if not note.exists():
        if trainer.is_root:
            out(f"WARNING: could not find the metadata file {note}")
            out("    will not load any checkpoints and will start from random")
        return 0
    if re.fullmatch(r"\d+", note.read_text().strip()) is None:
        raise TrainingFailed(f"ERROR: Invalid metadata file {note}. Exiting")
    step = int(note.read_text())
    if trainer.is_root:
        out(f" loading checkpoint from {source} at iteration {step}")
    load(Path(source) / f"iter_{step:07d}" / "mp_rank_00" / "model_optim_rng.pt", trainer.model)
    return step
