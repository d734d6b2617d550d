"""The example in JAX on two nodes, with the real JAX on CPU: what the scenes of both engines share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.processes import free_ports
from tests.support import ROOT, need, until
from trainium_cdk.jobs import Backend, Script

JAX, EXAMPLE = ROOT / ".venvs/jax", ROOT / "examples/jax/train.py"
STEPS, EVERY = 800, 80
_LOOP = b"    for step in range(last + 1, args.steps + 1):\n"
RAISES = _LOOP + (
    b"        if step == 5 and jax.process_index() == 1:\n            raise ValueError('shard 7 is cut off')\n"
)


_LABEL = r"^(?:\d: )?"
"""What srun puts before a line of a node."""


def train(steps: int, content: bytes | None = None, **fields: Any) -> Script:
    need((JAX / ".done").exists(), "JAX is not installed: make .venvs/jax/.done")
    env = {
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",  # XLA's on CPU names its features for each graph that it reads from the cache
        "MASTER_PORT": str(free_ports(1)[0]),
        "PYTHONPATH": str(next((JAX / "lib").glob("python*")) / "site-packages"),
    }
    args = ("--steps", str(steps), "--save-every", str(EVERY))
    made = {"filename": "train.py", "content": content or EXAMPLE.read_bytes(), "nodes": 2, "launcher": "jax"}
    return Script(**{**made, "args": args, "env": env, **fields})


def log(backend: Backend, id: str) -> str:
    return b"".join(chunk.data for chunk in backend.logs(id, stage="train")).decode()


def losses(text: str) -> dict[int, str]:
    """Of each step, the loss that was printed last."""
    return {int(step): loss for step, loss in re.findall(rf"{_LABEL}step (\d+)/\d+ loss ([\d.]+)$", text, re.MULTILINE)}


def check_it_resumes(backend: Backend, shared: Path, lose_a_node: Callable[[str], None]) -> None:
    """A job that loses a node continues from its newest checkpoint, and ends with the loss of one that lost none. Another job continues from it."""
    whole = backend.wait(backend.submit(train(STEPS, name="whole")).id, 600)
    assert whole.ok, log(backend, whole.id)
    sent = backend.submit(train(STEPS, name="lost")).id
    checkpoints = shared / "trn/jobs" / sent / "checkpoints"
    assert until(lambda: (checkpoints / str(2 * EVERY) / "_CHECKPOINT_METADATA").exists())
    lose_a_node(sent)
    done = backend.wait(sent, 600)
    text = log(backend, sent)
    assert done.ok, text
    [began] = {int(step) for step in re.findall(rf"{_LABEL}continues from step (\d+)$", text, re.MULTILINE)}
    assert began >= 2 * EVERY, text
    assert losses(text)[STEPS] == losses(log(backend, whole.id))[STEPS]
    more = backend.wait(backend.submit(train(STEPS + EVERY, name="more", resume_from=sent)).id, 600)
    text = log(backend, more.id)
    assert more.ok, text
    assert f"continues from step {STEPS}\n" in text


def check_a_rank_that_raises(backend: Backend) -> None:
    """It is named within a minute, though JAX lets it wait 300 s for the other one."""
    sent = backend.submit(train(STEPS, EXAMPLE.read_bytes().replace(_LOOP, RAISES), name="raises")).id
    assert until(lambda: "ValueError: shard 7" in log(backend, sent))
    began = time.monotonic()
    assert until(lambda: backend.status(sent).done)
    assert time.monotonic() - began < 60
    assert backend.status(sent).stages[-1].why == "node 1, rank 1: ValueError: shard 7 is cut off"
    assert "jax_process.py" not in log(backend, sent)


def check_sigterm_saves(backend: Backend, shared: Path) -> None:
    sent = backend.submit(train(100_000, name="saves")).id
    assert until(lambda: len(losses(log(backend, sent))) > 5)
    assert backend.cancel(sent).state == "CANCELLED"
    assert until(lambda: "to end in time" in log(backend, sent)), log(backend, sent)
    [step] = set(re.findall(r"saved step (\d+), to end in time", log(backend, sent)))
    assert (shared / "trn/jobs" / sent / "checkpoints" / step / "_CHECKPOINT_METADATA").exists()
