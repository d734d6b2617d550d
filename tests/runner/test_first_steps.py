"""A training that hangs before its usual time between two steps is known, and what takes long then and is no hang."""

from __future__ import annotations

import pytest

from trainium_cdk.runner.spec import HealthRules
from trainium_cdk.runner.work.health import decide
from trainium_cdk.runner.work.pulse import Progress


class Clock:
    now = 1_795_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("history", "hangs"),
    [
        # seconds without a word; then lines, what they are, and `cc` while a compiler runs
        ("300 + 660", True),  # all in one look
        ("300 1 30 2 30 3 30 4 30 5 30 6 30 7 570", False),
        ("300 1 30 2 30 3 30 4 30 5 30 6 30 7 660", True),
        ("300 1 120 2 120 3 1080", False),
        ("300 1 120 2 120 3 1320", True),
        ("300 1 5000", False),  # one step
        ("1500 1 30 2 30 3 1440 4 30 5", False),  # it traces a new shape, in its own process
        ("1500 1 30 2 30 3 1600", True),
        # traces, compiles, loads: TorchNeuron starts neuronx-cc
        ("240 cc 3000 120 1 30 2 30 3 240 cc 3000 120 4 30 5", False),
        ("240 cc 3000 120 1 30 2 30 3 660", True),
        ("240 cc 3000 120 1 30 2 30 3 cc 3000 660", True),
        ("240 1 30 2 cc 900 30 3 660", True),  # a graph that was compiled is no usual step
        ("240 1 30 2 30 3 30 4 30 5 saves 3000 saved 300 6", False),
        ("240 1 30 2 30 3 30 4 30 5 saves 3900", True),
        ("240 1 30 2 30 3 30 4 30 5 evaluates 3000 6", False),
        ("240 1 30 2 30 3 30 4 30 5 bar 3000 6", False),
        ("240 1 30 2 30 3 30 4 30 5 bar 3900", True),
    ],
)
def test_a_hang_before_the_tenth_step(history: str, hangs: bool) -> None:
    """Looks every 30 s, by a clock that the test moves."""
    clock = Clock()
    one, found, compiles = Progress(clock), list[str](), False
    said = {
        "saves": "Saving checkpoint to /efs/x", "saved": "Saved checkpoint to /efs/x", "evaluates": "***** Running Evaluation *****",
        "bar": "\r  1%|    | 5/500 [00:05<08:20,  1.00s/it]",
    }  # fmt: skip
    for word in history.split():
        if word == "cc":
            compiles = True
        elif word in said:
            one.read(f"{said[word]}\n".encode(), clock.now)
        elif word.isdigit() and int(word) < 10:
            one.read(f"step {word}/40 | loss 3.0\n".encode(), clock.now)
        elif word == "+":  # all that follows is read at once
            one.read("".join(f"step {step}/40 | loss 3.0\n" for step in range(1, 8)).encode(), clock.now)
        else:
            for _ in range(int(word) // 30):
                clock.now += 30
                one.sees_compiler(compiles)
                found += [wrong.kind for wrong in decide([one.pulse(0, 0)], clock.now, HealthRules("restart", "stop"))]
            compiles = False
    assert ("hang" in found) == hangs
