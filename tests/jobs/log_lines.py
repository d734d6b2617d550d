"""Log lines as the vendors' training programs print them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

BERT = "LOG Wed Dec 21 00:12:27 2022 - (0, 14) step_loss : 11.2500 learning_rate : 2.80e-06 throughput : 6497.86 "
MEGATRON = (
    " iteration       64/  143051 | consumed samples:        65536 | elapsed time per iteration (ms): 7313.1 | "
    "learning rate: 4.956E-05 "
    "| global batch size:  1024 | lm loss: 7.281250E+00 | grad norm: 3.562 | throughput: 140.022 |"
)
NEMO = (
    "Epoch 0:   0%|          | 189/301501 [59:12<1573:03:24, 18.79s/it, loss=7.75, v_num=3-16, "
    "reduced_train_loss=7.560, "
    "global_step=188.0, consumed_samples=24064.0]"
)
NXDT = (
    "Epoch 0:   5%|4         | 3/62 [02:59<58:44,  0.02it/s, v_num=8-06, reduced_train_loss=6.930, lr=2.73e-5, "
    "global_step=1.000, "
    "consumed_samples=32.00, throughput=0.108, throughput_peak=0.0677, gradient_norm=8.600]"
)
TITAN = (
    "[rank0]:[titan] 2026-10-20 10:00:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss: 10.2954  \x1b[38;2;180;60;0m"
    "grad_norm:  1.4273  \x1b[38;2;54;234;195mmemory: 24.31GiB(25.32%)  \x1b[34mtps: 1,532  \x1b[36mtflops: 88.71  \x1b[35mmfu: 13.30%\x1b[39m"
)
TITAN_VALIDATES = (
    "[rank0]:[titan] 2026-10-20 10:00:00,000 - root - INFO - \x1b[33mvalidate step: 10  \x1b[32mloss: 10.3011  "
    "\x1b[38;2;54;234;195mmemory: 24.31GiB(25.32%)  \x1b[34mtps: 4,532\x1b[39m"
)
TRAINER = "{'loss': 2.3051, 'grad_norm': 1.25, 'learning_rate': 4.8e-05, 'epoch': 0.02}"


def usual(step: int, loss: float = 11.25, norm: str = "") -> bytes:
    return (
        f"LOG Fri Nov 20 08:00:05 2026 - (0, {step}) step_loss : {loss:.4f} learning_rate : {2.8e-6 / (step + 1):.2e} "
        f"throughput : {7e3 - step:.2f} {norm}\n"
    ).encode()


def megatron(step: int) -> bytes:
    return MEGATRON.replace("      64/", f"{step:8}/").replace("7.281250E+00", f"{9 / (step + 1):.6E}").encode() + b"\n"


def megatron_lm(step: int) -> bytes:
    return (
        f" [2026-11-20 08:00:05] iteration {step:8}/     100 | consumed samples: {step * 32:12} | elapsed time per iteration (ms): 812.4 | "
        f"throughput per GPU (TFLOP/s/GPU): 150.2 | learning rate: 1.000000E-05 | global batch size:    32 | lm loss: {9 / (step + 1):.6E} | "
        "loss scale: 1.0 | grad norm: 5.025 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    ).encode()


def titan(step: int) -> bytes:
    return TITAN.replace("10  \x1b", f"{step:2}  \x1b").replace("1,532", f"{990 + step:,}").encode() + b"\n"


def nemo(step: int) -> bytes:
    return NEMO.replace("188.0", f"{step / 1:.3g}" if step % 10 == 9 else f"{step}.0").encode() + b"\r"


def nxdt(step: int) -> bytes:
    """A bar is drawn twice for each step: as the batch ends with the values of the one before, and with its own."""
    return (
        NXDT.replace("step=1.000", f"step={step // 2}.000").replace("6.930", f"{9 / (step // 2 + 1):.3f}").encode()
        + b"\r"
    )


def nxdt_now(step: int) -> bytes:
    before, norm = f"{nxdt(step).decode()[:-2]}".split(", gradient_norm")
    return before.replace("global", f"parameter_norm=1.230, gradient_norm{norm}, global").encode() + b"]\r"


def trainer(step: int, quote: str = "", names: str = "loss grad_norm learning_rate", rest: str = "") -> bytes:
    values = {
        "loss": f"{9 / (step + 1):.4f}",
        "grad_norm": repr(1 / (step + 3)),
        "learning_rate": repr(4.8e-5 / (step + 1)),
    }
    entries = [f"'{name}': {quote}{values[name]}{quote}" for name in names.split()]
    return ("{" + ", ".join([*entries, *filter(None, [rest]), f"'epoch': {quote}{step / 100}{quote}"]) + "}\n").encode()


ORDERS = ("loss grad_norm learning_rate", "loss learning_rate grad_norm", "loss learning_rate")
USUAL: dict[str, Callable[[int], bytes]] = {
    "bert": usual,
    "bert with norms": lambda step: usual(step, norm=f"grad-norm : {1 / (step + 3)}"),
    "nxd": lambda step: usual(step, norm="seq/s "),
    "nxd with norms": lambda step: usual(step, norm=f"seq/s grad-norm : {1 / (step + 3)}"),
    "megatron": megatron,
    "megatron-lm": megatron_lm,
    "titan": titan,
    "titan without colours": lambda step: re.sub(rb"\x1b\[[0-9;]*m", b"", titan(step)),
    "nemo": nemo,
    "nxdt": nxdt,
    "nxdt now": nxdt_now,
    **{
        f"trainer {quote} {order} {rest}": partial(trainer, quote=quote, names=order, rest=rest)
        for quote in ("", "'")
        for order in ORDERS
        for rest in ("", f"'num_tokens': {quote}1024.0{quote}, 'mean_token_accuracy': {quote}0.51{quote}")
    },
}
"""What programs print at a step. Of TorchTitan and NxD Training as their sources at the pinned commits format it."""

_NOT_TRLS = re.compile(
    r"Warning: |warnings\.warn\(|\[transformers\] |^Generating train split|^SANDBOX |^Worker |^  |^$"
)
"""What libraries print beside TRL's `sft`, what `prepare` has made before, what only the sandbox prints, and the places of an exception."""


def forms_of_trl(log: str) -> set[str]:
    """The lines of TRL's `sft` until its launcher reports, and what its bars drew, without their numbers."""
    program = re.split(r"(?m)^[EW]\d{4} .*torch/distributed/elastic", log)[0]
    lines = [re.sub(r"^\[rank\d\]: ?", "", line) for line in re.split(r"[\r\n]+", program)]
    lines = [re.sub(r" saved to .*| *\d+%\|[^|]+\|", "", line) for line in lines if not _NOT_TRLS.search(line)]
    return {re.sub(r"(?<![A-Za-z])\d[\d.:]*(e[-+]?\d+)?", "0", line) for line in lines}
