"""How fast the logs of jobs are read: `python -m benchmarks.logs`, a part of `make bench`.

In MB of log for each second of processor time, from its bytes to what `trn report` draws (`Run.feed`: records, summary and
curves), the best of three: for each program that prints steps, with a step in each line; then with other lines between. And the most memory that it took. The exit code is 1 where reading is below `AIM`.
"""

from __future__ import annotations

import re
import sys
import time
import tracemalloc

from rich.console import Console
from rich.table import Table

from trainium_cdk.jobs import JobStatus
from trainium_cdk.jobs.report.cost import Price
from trainium_cdk.jobs.report.run import Run

OTHER = (
    b"2026-11-20 08:00:05.000123:  39810  INFO ||NEURON_CC_WRAPPER||: Using a cached neff at "
    b"/fsx/trn/neuron_cache/bert-large/compute1-dy-trn-1/neuronxcc-2.21.18209.0/MODULE_16045690984503098046/model.neff\n"
)
BERT = "LOG Fri Nov 20 08:00:05 2026 - (0, {step}) step_loss : {loss:.4f} learning_rate : {rate:.2e} throughput : {speed:.2f} "
BAR = (
    "Epoch 0:   5%|4         | {at}/62000 [02:59<58:44,  0.02it/s, v_num=8-06, reduced_train_loss={loss:.3f}, lr={rate:.2e}, "
    "gradient_norm={norm:.3f}, global_step={step}.0, consumed_samples={samples}.0, throughput={speed:.1f}, throughput_peak=6570.0]\r"
)
TITAN = (
    "[rank0]:[titan] 2026-11-20 08:00:05,000 - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: {loss:8.5f}  "
    "\x1b[38;2;180;60;0mgrad_norm: {norm:7.4f}  \x1b[38;2;54;234;195mmemory: 24.31GiB(25.32%)  \x1b[34mtps: {tokens:,}  "
    "\x1b[36mtflops: 88.71  \x1b[35mmfu: 13.30%\x1b[39m\n"
)
TRAINER = "{{'loss': {loss:.4f}, 'grad_norm': {norm}, 'learning_rate': {rate}, 'epoch': {epoch}}}\n"
FORMS = {
    "bert-large": BERT + "\n",
    "bert-large with gradient norms": BERT + "grad-norm : {norm}\n",
    "scripts (NxD's examples)": BERT + "seq/s grad-norm : {norm}\n",
    "gpt-6.7b (NxD Training), each bar twice": BAR * 2,
    "NeMo": "Epoch 0:   0%|          | {at}/301501 [59:12<1573:03:24, 18.79s/it, loss=7.75, v_num=3-16, reduced_train_loss={loss:.3f}, "
    "global_step={step}.0, consumed_samples={samples}.0]\r",
    "torchtitan": TITAN,
    "torchtitan without colours": re.sub("\x1b.*?m", "", TITAN),
    "finetune, scripts (Trainer)": TRAINER,
    "finetune, scripts (Trainer 5)": "{{'loss': '{loss:.4g}', 'grad_norm': '{norm:.4g}', 'learning_rate': '{rate:.4g}', 'epoch': '{epoch:.4g}'}}\n",
    "scripts (Optimum Neuron)": "{{'loss': {loss:.4f}, 'learning_rate': {rate}, 'grad_norm': {norm}, 'epoch': {epoch}}}\n",
    "scripts (Megatron)": " iteration {step:8}/  143051 | consumed samples: {samples:12} | elapsed time per iteration (ms): {time:.1f} | "
    "learning rate: {rate:.3E} | global batch size:  1024 | lm loss: {loss:.6E} | grad norm: {norm:.3f} | throughput: {speed:.3f} |\n",
}
"""What each program prints at a step, with what is different in each."""
PIECE = 196_608
"""Bytes that come at once, as from a head node."""
AIM = 100
"""MB/s that logs must reach."""


def steps(form: str, first: int, last: int) -> list[bytes]:
    """The lines of some steps."""
    return [
        form.format(
            step=step,
            at=step + 1,
            loss=1.5 + 1000 / (step + 100) + step * 7919 % 1000 / 2000,
            rate=4e-4 * (1 - step / 1e7),
            speed=6400 + step * 7919 % 1009 / 6,
            norm=1 / (step % 977 + 1.5),
            samples=step * 1024,
            tokens=1400 + step * 7919 % 211,
            epoch=round(step / 30_000, 2),
            time=7300 + step * 7919 % 1009 / 6,
        ).encode()
        for step in range(first, last)
    ]


def speed(form: str, every: int = 1, megabytes: int = 10) -> float:
    """MB/s of a log in which one line of `every` is a training step."""
    run = Run(JobStatus("job", "bert-large", "trn1", "trn1.32xlarge", 1, None, ()), Price(None, ""))
    size, seconds, step = 0, 0.0, 0
    while size < megabytes * 1_000_000:
        lines = steps(form, step + 1, step + 1 + 20_000 // every)
        step += len(lines)
        text = (OTHER * (every - 1)).join([*lines, b""])
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        began = time.process_time()
        for piece in pieces:
            run.feed("train", piece)
        seconds += time.process_time() - began
        size += len(text)
    if run.reader.summary.steps != step or run.curves.step != step:
        raise ValueError(f"{run.reader.summary.steps} of {step} steps were read")
    return size / seconds / 1e6


def memory(megabytes: int) -> float:
    """The most memory in MB that reading a log takes."""
    tracemalloc.start()
    speed(FORMS["bert-large"], megabytes=megabytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> int:
    """Measure and print the table; returns the exit code."""
    table = Table("log", "MB/s of processor time", "at least", title="reading logs")
    slow = False
    measured = [(name, form, 1) for name, form in FORMS.items()]
    measured += [(f"bert-large, a step in {every} lines", FORMS["bert-large"], every) for every in (10, 50, 1000)]
    for name, form, every in measured:
        found = max(speed(form, every) for _ in range(3))
        slow |= found < AIM
        table.add_row(name, f"{found:.0f}", str(AIM))
    Console().print(table)
    few, many = memory(20), memory(80)
    Console().print(f"most memory: {few:.1f} MB for 20 MB of log, {many:.1f} MB for 80 MB")
    return int(slow or many > 1.5 * few)


if __name__ == "__main__":
    sys.exit(main())
