"""Replaces TRL's `trl.scripts.sft`: its options for a fine-tuning, the bars of Datasets, Transformers' log lines and checkpoints, the files of
a result. tests/jobs/test_trl.py holds its log against the original's."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import struct
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from .collective import Collective
from .trainer import BYTES_OF_A_SEQUENCE, Trainer, TrainingFailed, load, out, run, save, workers

_OTHERS = ("logging_steps", "lora_target_modules", "lr_scheduler_type", "report_to", "seed", "warmup_steps", "weight_decay", "dtype", "bf16",
    "gradient_checkpointing", "disable_tqdm", "save_strategy", "dataset_config")  # fmt: skip
"""Options with a value that change nothing of the small model."""
_MARK = "trainer_state.json"
_STATE = "sandbox.json"
_DIVERGES = 1e3
"""From this learning rate on the model is lost after its first step, as the original's is."""


def parser() -> argparse.ArgumentParser:
    """The options of TRL's program that are known here."""
    made = argparse.ArgumentParser(prog="sft.py", allow_abbrev=False)
    for name in ("model_name_or_path", "dataset_name", "output_dir"):
        made.add_argument(f"--{name}", required=True)
    for name, default in (
        ("num_train_epochs", 3.0),
        ("max_steps", -1),
        ("max_length", 1024),
        ("per_device_train_batch_size", 8),
        ("gradient_accumulation_steps", 1),
        ("learning_rate", 2e-5),
        ("save_steps", 500),
        ("save_total_limit", 0),
        ("lora_r", 16),
        ("lora_alpha", 32),
    ):
        made.add_argument(f"--{name}", type=type(default), default=default)
    made.add_argument("--fsdp_config")
    made.add_argument("--resume_from_checkpoint")
    for name in ("fsdp", "use_peft", "packing"):
        made.add_argument(f"--{name}", action="store_true")
    for name in _OTHERS:
        made.add_argument(f"--{name}")
    made.add_argument("--logging_nan_inf_filter", type=_truth, default=True)
    return made


def _truth(text: str) -> bool:
    try:
        return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a truth value") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with the reason on standard error; 2 of argparse."""
    flags, others = parser().parse_known_args(arguments)
    if others:  # the original refuses those that do not exist, by an exception that PyTorch labels
        who = f"[rank{os.environ.get('RANK', '0')}]:"
        reason = f"ValueError: Some specified arguments are not used by the HfArgumentParser: {others}"
        print(f"{who} Traceback (most recent call last):\n{who} {reason}", file=sys.stderr, flush=True)
        return 1
    return run(lambda collective: _train(collective, flags))


def _model(name: str) -> None:
    """Raises TrainingFailed: neither a directory, nor in the cache, which is all that is read offline."""
    there = Path(name)
    if not there.is_absolute():
        there = next(_cached(f"hub/models--{name.replace('/', '--')}/snapshots/*"), there)
    if not there.is_dir():
        raise TrainingFailed(f"OSError: {name} is not a local folder and is not in Hugging Face's cache")


def _cached(pattern: str) -> Iterator[Path]:
    return _cache().glob(pattern)


def _cache() -> Path:
    return Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()


def _bar(title: str, count: int, unit: str) -> None:
    """Draw a bar from its beginning to its end, as tqdm does in a pipe."""
    for done, bar, took in ((0, " " * 10, "00:00<?, ?"), (count, "█" * 10, f"00:00<00:00, {count * 40:.2f}")):
        of = f"{100 * done // count:3}%|{bar}| {done}/{count} [{took}{unit}]"
        print(f"\r{title}: {of}", end="" if done < count else "\n", file=sys.stderr, flush=True)


def _tokenized(name: str, rows: int, *, chats: bool, packing: bool, max_length: int) -> None:
    """Draw the bars of what TRL does with a data set; once, as Datasets keeps the result in its cache."""
    there = _cache() / "datasets" / f"cache-{name.replace('/', '___')}-{max_length}-{packing}.arrow"
    if there.exists():
        return
    of = () if chats else ("Adding EOS to",)
    last = ("Packing",) if packing else ("Truncating", "Dropping fully masked examples from")
    for what in (*of, "Tokenizing", "Building labels for", *last):
        _bar(f"{what} train dataset", rows, " examples/s")
    with contextlib.suppress(OSError):
        there.parent.mkdir(parents=True, exist_ok=True)
        there.touch()


def _texts(name: str) -> tuple[list[bytes], bool]:
    """The conversations of a data set, each as one text, and whether the first is of messages.

    Raises:
        TrainingFailed: there is none, or a line of it has no known form.
    """
    files = sorted(Path(name).rglob("*.json*")) if Path(name).is_absolute() else []
    files = files or sorted(_cached(f"datasets/{name.replace('/', '___')}/train"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines() if line]
    found = []
    for line in lines:
        one = json.loads(line)
        if "messages" in one:
            one = {"text": " ".join(message["content"] for message in one["messages"])}
        elif "prompt" in one and "completion" in one:
            one = {"text": f"{one['prompt']} {one['completion']}"}
        if not one.get("text"):
            raise TrainingFailed(
                f"KeyError: a line of {name} has neither messages, nor prompt and completion, nor text"
            )
        found.append(one["text"].encode())
    if not found:
        raise TrainingFailed(f"ConnectionError: couldn't find the data set {name} in a folder or in the cache")
    return found, "messages" in json.loads(lines[0])


def _train(collective: Collective, flags: argparse.Namespace) -> None:
    trainer = Trainer(collective)
    trainer.introduce("trl.scripts.sft")
    _model(flags.model_name_or_path)
    if flags.fsdp_config and json.loads(Path(flags.fsdp_config).read_text()).get("version") != 2:
        raise TrainingFailed(f"ValueError: {flags.fsdp_config} is not a configuration of FSDP2")
    texts, chats = _texts(flags.dataset_name)
    _bar("Loading weights", 1, "it/s")
    if trainer.is_root:
        _tokenized(flags.dataset_name, len(texts), chats=chats, packing=flags.packing, max_length=flags.max_length)
    world = collective.world * workers()
    batch = flags.per_device_train_batch_size * flags.gradient_accumulation_steps * world
    steps_of_epoch = math.ceil(len(texts) / batch)
    steps = flags.max_steps if flags.max_steps > 0 else math.ceil(flags.num_train_epochs * steps_of_epoch)
    output, step = Path(flags.output_dir), 0
    if flags.resume_from_checkpoint:
        step = int(load(Path(flags.resume_from_checkpoint) / _STATE, trainer.model)["step"])
    begin, first, total = time.monotonic(), step, 0.0
    while step < steps:
        loss, norm = trainer.step(step + 1, _blocks(texts, collective, batch, step))
        rate = flags.learning_rate * (steps - step) / steps
        step += 1
        lost = math.isnan(loss)
        shown = (
            0.0 if lost and flags.logging_nan_inf_filter else loss
        )  # the mean of those since the last line, which are none
        total += shown
        # each node's first process prints them, as Transformers does
        _log(
            loss=shown,
            grad_norm=norm,
            learning_rate=rate,
            entropy=loss,
            mean_token_accuracy=0.0 if lost else math.exp(-loss),
            num_tokens=float((step - first) * batch * BYTES_OF_A_SEQUENCE),
            epoch=step / steps_of_epoch,
        )
        if rate >= _DIVERGES:
            trainer.model.weights[:] = array("d", [math.nan] * len(trainer.model.weights))
        if trainer.is_root and (step % flags.save_steps == 0 or step == steps):
            _checkpoint(trainer, output, step, flags)
    took = time.monotonic() - begin
    _log(
        train_runtime=took,
        train_samples_per_second=(step - first) * batch / max(took, 1e-9),
        train_steps_per_second=(step - first) / max(took, 1e-9),
        train_loss=total / max(1, step - first),
        epoch=step / steps_of_epoch,
    )
    trainer.verify()
    out("✅ Training completed.")
    if trainer.is_root:
        _result(trainer, output, flags)
    out(f"💾 Model saved to {flags.output_dir}.")


def _log(**values: float) -> None:
    out(str({name: f"{value:.4g}" for name, value in values.items()}))


def _blocks(texts: Sequence[bytes], collective: Collective, batch: int, step: int) -> Iterator[bytes]:
    """This process's part of the global batch, a block for each sequence."""
    for sample in range(step * batch + collective.rank, (step + 1) * batch, collective.world):
        text = texts[sample % len(texts)]
        begin = sample // len(texts) * BYTES_OF_A_SEQUENCE % max(1, len(text) - BYTES_OF_A_SEQUENCE)
        yield text[begin : begin + BYTES_OF_A_SEQUENCE].ljust(2)


def _checkpoint(trainer: Trainer, output: Path, step: int, flags: argparse.Namespace) -> None:
    folder = output / f"checkpoint-{step}"
    _result(trainer, folder, flags)
    save(folder / _STATE, trainer.model, {"step": step})
    (folder / _MARK).write_text(json.dumps({"global_step": step}))  # last: it makes the checkpoint a whole one
    there = sorted(output.glob("checkpoint-*"), key=lambda at: int(re.sub(r"\D", "", at.name)))
    for old in there[: -flags.save_total_limit] if flags.save_total_limit else ():
        shutil.rmtree(old)


def _result(trainer: Trainer, folder: Path, flags: argparse.Namespace) -> None:
    """The files of a model, or of adapters, as PEFT names them; the numbers are the small model's."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = trainer.model.weights
    entry = {"small_model.weight": {"dtype": "F64", "shape": [len(weights)], "data_offsets": [0, 8 * len(weights)]}}
    head = json.dumps(entry).encode()
    name = "adapter_model" if flags.use_peft else "model"
    if not flags.use_peft:
        _bar("Writing model shards", 1, "it/s")
    (folder / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + weights.tobytes())
    facts = {
        "base_model_name_or_path": flags.model_name_or_path,
        "peft_type": "LORA",
        "r": flags.lora_r,
        "lora_alpha": flags.lora_alpha,
    }
    config = (
        ("adapter_config.json", facts)
        if flags.use_peft
        else ("config.json", {"_name_or_path": flags.model_name_or_path})
    )
    (folder / config[0]).write_text(json.dumps(config[1], indent=2) + "\n")
