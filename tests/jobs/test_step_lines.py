"""The reader of the lines that people's own scripts print: what is a training step, and what only looks like one."""

from __future__ import annotations

import re
import time

import pytest

from trainium_cdk.client.jobs.metrics import lines, parse_line, read_log
from trainium_cdk.runner.readers.records import Step
from trainium_cdk.runner.readers.step_lines import EXAMPLES, MARKS, what_to_print

STEPS: list[tuple[str, Step]] = [
    # by the forms of issue 38 and of well-known programs
    ("step 1/400 loss 3.48 lr 1e-4", Step(1, 3.48, 1e-4, total_steps=400)),
    ("Step 1, loss 3.48", Step(1, 3.48)),
    ("step: 1 loss: 3.48", Step(1, 3.48)),
    ("step=10 loss=3.4", Step(10, 3.4)),
    ("step: 10, loss: 2.31", Step(10, 2.31)),
    ('{"step": 10, "loss": 3.4}', Step(10, 3.4)),
    ("iter 10: loss 3.4123, time 100.00ms, mfu 1.2%", Step(10, 3.4123, seconds=0.1)),
    ("step 2000: train loss 1.7648, val loss 1.8857", Step(2000, 1.7648)),
    ("Epoch [1/5], Step [10/100], Loss: 0.5", Step(10, 0.5, total_steps=500)),
    ("Epoch [2/5], Step [10/100], Loss: 0.5", Step(110, 0.5, total_steps=500)),
    ("Step [100/600], Loss: 0.43", Step(100, 0.43, total_steps=600)),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3", Step(640, 2.3)),
    ("Train Epoch: 2 [640/60000 (1%)]\tLoss: 2.3", Step(60_640, 2.3)),
    ("Epoch: [1][  10/5005]\tTime  0.123 ( 0.200)\tLoss 6.9e+00 (6.95e+00)", Step(5015, 6.9)),
    ("Epoch 1/3, Batch 100/938, Loss: 0.3", Step(100, 0.3, total_steps=2814)),
    (
        "step 10/19560 | train loss 8.12 | norm 1.2 | lr 1e-4 | 812 ms | 12000 tok/s",
        Step(10, 8.12, 1e-4, grad_norm=1.2, total_steps=19560, seconds=0.812, tokens_per_second=12000, unit="tokens/s"),
    ),
    (
        "step    10 | loss: 8.125 | lr 1.0e-04 | norm: 1.2 | dt: 812.00ms | tok/sec: 12000.50",
        Step(10, 8.125, 1e-4, grad_norm=1.2, seconds=0.812, tokens_per_second=12000.5, unit="tokens/s"),
    ),
    ("step 1/12 loss 1.4380 lr 0.05 grad_norm 7.537 812.0 tok/s", Step(1, 1.438, 0.05, None, 7.537, 12, tokens_per_second=812, unit="tokens/s")),
    (
        "completed step: 10, seconds: 3.2, TFLOP/s/device: 1, Tokens/s/device: 2, total_weights: 3, loss: 7.8",
        Step(10, 7.8, seconds=3.2, tokens_per_second=2, unit="tokens/s/device"),
    ),
    ("1|10|Loss: 1.37:", Step(10, 1.37)),
    ("1|10|Loss: 1.3704:   0%|          | 10/25880 [00:14<9:24:38,  1.31s/it]", Step(10, 1.3704, seconds=1.31)),
    ("steps: 10 loss: 3.14 iter time (s): 0.5 samples/sec: 12.3", Step(10, 3.14, None, 12.3, seconds=0.5, unit="samples/s")),
    ("| Training Device=xla:0/2 Epoch=1 Step=20 Loss=2.20312 Rate=120.11 GlobalRate=101.00 Time=11:20:05", Step(20, 2.20312)),
    (
        "Training epoch 0, iteration 10/99 | lr: 1.2e-05 | global_batch_size: 256 | global_step: 10 | reduced_train_loss: 8.123 | "
        "train_step_timing in s: 3.21 | consumed_samples: 2816",
        Step(10, 8.123, 1.2e-5, total_steps=99, global_batch_size=256, seconds=3.21, throughput=79.75077881619937),
    ),
    (
        " samples/sec: 50.173 | iteration       10/  320000 | elapsed time per iteration (ms): 5103.2 | learning rate: 6.000E-04 | "
        "lm_loss: 1.084000E+01 | loss scale: 32768.0 |",
        Step(10, 10.84, 6e-4, 50.173, total_steps=320_000, seconds=5.1032, unit="samples/s"),
    ),
    # bars
    ("  5%|▌         | 5/100 [00:03<00:09,  1.2it/s, loss=2.90]", Step(5, 2.9, total_steps=100, seconds=1 / 1.2)),
    ("Epoch 1:  25%|##5       | 1/4 [00:03<00:09,  1.2it/s, train_loss=2.41, v_num=0]", Step(5, 2.41, seconds=1 / 1.2)),
    ("Epoch 0:  25%|##5       | 1/4 [00:03<00:09,  1.2it/s, train_loss_step=1.93, v_num=0]", Step(1, 1.93, seconds=1 / 1.2)),
    ("Epoch 2/3:  25%|##5       | 1/4 [00:03<00:09,  1.2it/s, loss=1.93]", Step(5, 1.93, total_steps=12, seconds=1 / 1.2)),
    # JSON
    ('{"train_loss": 3.4, "step": 10, "lr": 1e-4}', Step(10, 3.4, 1e-4)),
    ('0: INFO:x:{"event": "train", "metrics": {"train/loss": 3.4, "samples_per_second": 12}, "step": 10, "val": {"loss": 4}}', Step(10, 3.4, None, 12, unit="samples/s")),
    ('{"_step": 10, "loss": "3.4", "names": ["a", {}]}', Step(10, 3.4)),
    ('{"iteration": 10, "loss": NaN}', Step(10)),
    ('{"loss": 7.15, "learning_rate": 5e-5, "epoch": 0.5, "step": 500}', Step(500, 7.15, 5e-5)),
    ('{"globalStep": 1000, "trainLoss": 2.5, "extra": {"a": {"b": 1}}}', Step(1000, 2.5)),
    ("{'step': 10, 'loss': np.float64(2.1)}", Step(10, 2.1)),
    # numbers and names
    ("step 1,000 loss 3.48e+00 lr: 1.0e-04", Step(1000, 3.48, 1e-4)),
    ("Step: 10\tLoss: nan", Step(10)),
    ("step 12: loss inf", Step(12)),
    ("step: 10 loss: tensor(2.3, device='xla:0')", Step(10, 2.3)),
    ("step 10.0 loss -0.25", Step(10, -0.25)),
    ("it 5 loss 3.2", Step(5, 3.2)),
    ("[step 10] loss: 2.1 | grad norm: 0.5", Step(10, 2.1, grad_norm=0.5)),
    ("global_step=10 train_loss: 2.1", Step(10, 2.1)),
    ("trainer/global_step=12 loss=1.2", Step(12, 1.2)),
    ("Iteration 10 | Training loss: 2.3 | Learning Rate: 0.001", Step(10, 2.3, 1e-3)),
    ("step 10 of 100: loss=2.5 tok/s=12.3k", Step(10, 2.5, total_steps=100, tokens_per_second=12_300, unit="tokens/s")),
    ("Step #10 - Loss 2.5 - 740 seq/s", Step(10, 2.5, None, 740, unit="sequences/s")),
    ("STEP 10 LOSS 2.5", Step(10, 2.5)),
    ("step 10 | loss 2.5 | tokens per second: 1,234.5 | step time: 0.25s", Step(10, 2.5, seconds=0.25, tokens_per_second=1234.5, unit="tokens/s")),
    ("step 10 tok/s 1200", Step(10, tokens_per_second=1200, unit="tokens/s")),
    ("step 10 loss 2.5 aux_loss 0.1 loss scale: 1.0 params norm: 3", Step(10, 2.5)),
    ("step 10 aux loss 0.1 loss 2.5", Step(10, 2.5)),
    ("step 10 test_acc: 0.3 loss: 2.5", Step(10, 2.5)),
    ("Finished step 10 with loss 3.4 in 3.2 s on all nodes", Step(10, 3.4)),
    # what stands before
    ("0: step 10 loss 2.3", Step(10, 2.3)),
    ("[rank0]: INFO:x: step 10, loss: 2.3", Step(10, 2.3)),
    ("2026-11-26 09:11:12,000 - train - INFO - step: 10, loss: 2.31, lr: 1.0e-04", Step(10, 2.31, 1e-4)),
    ("/data/test/run-7/train.py:12: step 10 loss 2.3", Step(10, 2.3)),
    ("\x1b[32mstep\x1b[0m 10 \x1b[1mloss\x1b[0m 2.3", Step(10, 2.3)),
]  # fmt: skip
OTHERS = [
    # validations
    "val step: 20 loss: 5.1",
    "val step: 20  loss: 5.1",
    "[eval] step 20 loss 5.1",
    "[eval] step: 20  loss: 5.1",
    "validation: step 20, loss 5.1",
    "Validation step 20 loss 5.1",
    "step 20 | eval | loss 5.1",
    "step 20 (val) loss 5.1",
    "eval_loss 5.1 step 20",
    "step 20 val_loss 5.0 tok/s 100",
    "step 20 val loss 5.0 val acc 0.3",
    "step 20: validation loss: 5.0",
    "step 20 eval/loss=5.0",
    "test: step 20 loss 3",
    "Test set: step 20, average loss: 0.05, Accuracy: 9800/10000 (98%)",
    "eval step 20 loss 3",
    "eval_step: 20 loss 3",
    "Evaluating step 20: loss 3",
    '{"step": 20, "eval_loss": 3.4}',
    '{"step": 20, "split": "val", "loss": 3.4}',
    '{"eval": {"step": 20, "loss": 3.4}}',
    '[eval] {"step": 20, "loss": 3.4}',
    "{'eval_loss': 2.3, 'eval_samples_per_second': 30, 'epoch': 1.0, 'step': 20}",
    "Validation DataLoader 0:  40%|####      | 40/100 [00:01<00:01, 30it/s, loss=1.93]",
    "Sanity Checking:  50%|#####     | 1/2 [00:01<00:01,  1.0it/s, loss=2]",
    # no number of a training
    "step 10",
    "Epoch 1/5",
    "step 10: checkpoint saved in 812 ms",
    "  5%|5         | 5/100 [00:03<00:09,  1.2it/s]",
    "wandb: train/loss 2.3",
    "wandb: global_step 100",
    "step 10 loss_scale 1.0",
    "loss scale: 1.0 at step 10",
    # settings
    "python train.py --steps 100 --lr 1e-4",
    "Namespace(steps=100, lr=0.001, batch_size=32)",
    "Namespace(max_steps=20, lr=0.006, resume_step=-1, warmup_steps=2, phase1_end_step=28125)",
    "TrainingArguments(global_step=3, learning_rate=5e-05)",
    "phase1_end_step=28125, lr=0.006",
    "start_step: 100, lr: 0.006",
    "max_steps=100 lr=1e-3",
    "warmup steps: 100, learning rate: 1e-4",
    "logging steps: 10, loss 2",
    '{"max_steps": 100, "lr": 1e-4}',
    # prose
    "step 3 of the installation took 4 s",
    "Step 1: download the data (12 files)",
    "Step 2/3: installing loss functions",
    "loss of 3 nodes at step 7",
    "best loss 2.1 at step 300",
    "NaN loss at step 12, stopping",
    "Loss is nan at step 12",
    "resuming from step 500",
    "resumed from step 500, loss 2.1",
    "iteration 5 failed: connection lost 3 times",
    "assert step == 10, loss",
    "Downloading 5/10 files, loss 3",
    '  File "train.py", line 12, in train_step',
    "do it 5 times, loss 3",
    "every 10 steps the loss 3 is printed",
    "trn: train: Slurm job 7 on compute1-dy-trn-[1-2], 2026-11-20T08:00:05Z",
    "",
]  # fmt: skip


@pytest.mark.parametrize(("line", "step"), STEPS)
def test_a_step(line: str, step: Step) -> None:
    assert [one for one in parse_line(line) if isinstance(one, Step)] == [step]
    assert [one for one in read_log(f"{line}\n".encode()) if isinstance(one, Step)] == [step]


@pytest.mark.parametrize("line", OTHERS)
def test_what_is_no_step(line: str) -> None:
    assert not [record for record in parse_line(line) if isinstance(record, Step)]


def test_the_examples_are_read() -> None:
    for example in EXAMPLES:
        assert parse_line(example) == [Step(10, 3.4)]


FORMS = {
    '{"step": 10, "loss": 3.4, "learning_rate": 1e-4, "grad_norm": 1.2, "tokens_per_second": 12000, "total_steps": 400}': Step(10, 3.4, 1e-4, None, 1.2, 400, None, None, 12_000, unit="tokens/s"),
    "step 10/400 | loss 3.4 | lr 1e-4 | grad norm 1.2 | 812 ms | 12000 tok/s": Step(10, 3.4, 1e-4, None, 1.2, 400, None, 0.812, 12_000, unit="tokens/s"),
    "iter 10: loss 3.4, time 812.00ms": Step(10, 3.4, seconds=0.812),
    "Epoch [1/5], Step [10/100], Loss: 3.4": Step(10, 3.4, total_steps=500),
    "step=10 train_loss=3.4 lr=1e-4": Step(10, 3.4, 1e-4),
    "  3%|3         | 10/400 [00:08<05:16,  1.23it/s, loss=3.4]": Step(10, 3.4, total_steps=400, seconds=0.8130081300813008),
}  # fmt: skip
"""Those that the documentation recommends."""
NAMES = (
    "lr", "learning_rate", "learning rate", "grad_norm", "grad norm", "gnorm", "norm", "tokens_per_second", "tokens/s", "tok/s", "tps",
    "samples_per_second", "samples/s", "sequences/s", "seq/s", "812 ms", "time 812ms", "step_time", "sec/step", "total_steps", "max_steps",
    "global_batch_size",
)  # fmt: skip
"""Of numbers beside the step and the loss."""


@pytest.mark.parametrize("line", FORMS)
def test_a_recommended_form(line: str) -> None:
    assert parse_line(line) == [FORMS[line]]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_number(name: str) -> None:
    (found,) = parse_line(f"step 10, loss 3 | {name}" if re.search(r"\d", name) else f"step 10, loss 3 | {name} 7")
    found = Step(*found)._replace(unit=None)
    assert len([value for value in found if value is not None]) == 3


def test_where_nothing_is_read_the_message_says_what_to_print() -> None:
    told = what_to_print(["first", "\x1b[1m0: at last\x1b[0m", "0: trn: at most 20000 files"])
    assert told == (
        'print one line for each step, for example {"step": 10, "loss": 3.4} or: step 10 loss 3.4. The last line of the log is: 0: at last'
    )
    assert what_to_print(["trn: begins"]).endswith("or: step 10 loss 3.4")


def test_a_line_with_a_step_has_a_mark() -> None:
    assert {mark.encode() for mark in MARKS} <= {*lines().marks}
    for line, _ in STEPS:
        assert any(mark in line for mark in MARKS), line


@pytest.mark.parametrize("begin", ["", "step 1 ", "%|", "{", '{"step": 1, "a": '])
def test_no_line_takes_long(begin: str) -> None:
    began = time.process_time()
    for piece in (
        "1",
        "1.",
        "1,",
        "| 1/1 [",
        "a",
        "-",
        " ",
        "step ",
        "loss ",
        "val ",
        "{",
        "[",
        '{"a":',
        "%|",
        "e1",
        "step 1 loss 2 ",
        "1 / 2 ",
        "(s)",
    ):
        parse_line((begin + piece * 100_000)[:100_000])
    assert time.process_time() - began < 2
