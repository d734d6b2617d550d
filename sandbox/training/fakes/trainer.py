"""The common part of the two fake training scripts: steps, pace, checkpoints, and the final check."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import node
from .collective import Collective, PeerLost, from_environment
from .model import SIZE, Model, counted

BYTES_OF_A_SEQUENCE = 16
"""Bytes of each sequence that the small model reads: the number of sequences is real, their length is not."""


class TrainingFailed(RuntimeError):
    """The run cannot continue; the message is the last line of the log."""


def out(text: str) -> None:
    """Print a line, with the prefix that torchrun's `--tee` requests."""
    print(f"{os.environ.get('TRN_LINE_PREFIX', '')}{text}", flush=True)


def workers() -> int:
    """How many workers (NeuronCores on a real node) this process replaces."""
    return int(os.environ.get("TRN_WORKERS", "1"))


def extracting() -> bool:
    """Whether neuron_parallel_compile runs this process only to extract graphs."""
    return bool(os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY"))


class Trainer:
    """A model on each process, kept identical by learning from the sum of what all have read."""

    def __init__(self, collective: Collective):
        self.collective = collective
        self.model = Model()
        self.is_root = collective.rank == 0
        self._pace = float(os.environ.get("TRN_SANDBOX_STEP_SECONDS", "0.1"))
        self._fault = node.fault("train")
        step, _, file = os.environ.get("TRN_SANDBOX_HOLD", "").partition(":")
        self._hold = (int(step), Path(file)) if step else None

    def introduce(self, script: str) -> None:
        """Print once what this is, so that its numbers are not taken for Trainium's."""
        if self.is_root:
            world = self.collective.world
            out(
                f"SANDBOX fake of {script}: {world} process{'es' * (world > 1)}, one per node, each doing the work of "
                f"{workers()} workers; a model of pairs of letters on {BYTES_OF_A_SEQUENCE} bytes of each sequence; "
                f"{self.collective.kind}. Loss and throughput are this small model's on this machine."
            )

    def step(self, number: int, blocks: Iterable[bytes]) -> tuple[float, float]:
        """A global step over the blocks of all processes: mean loss (nats) and length of the change.

        While graphs are extracted nothing is computed and both are 0, as with the real tool.
        """
        begin = time.monotonic()
        if self._fault == str(number) and self.collective.rank == self.collective.world - 1 and not extracting():
            raise TrainingFailed(f"RuntimeError: injected fault at step {number} on node {node.name()}")
        if extracting():
            self.collective.all_reduce(array("d", [0.0]))
            return 0.0, 0.0
        if self._hold and self._hold[0] == number and self.is_root:
            node.wait_for(self._hold[1].exists, math.inf)
        counts = array("d", bytes(8 * SIZE))
        for block in blocks:
            counted(block, counts)
        loss, norm = self.model.step(self.collective.all_reduce(counts))
        if self.is_root:
            time.sleep(max(0.0, self._pace - (time.monotonic() - begin)))
        return loss, norm

    def verify(self) -> None:
        """Compare the parameters of all processes.

        Raises:
            TrainingFailed: they differ, so the run is invalid.
        """
        mine = self.model.checksum()
        out(f"Worker {self.collective.rank} parameters sha256 {mine}")
        every = {theirs.decode() for theirs in self.collective.gather(mine.encode())}
        if len(every) > 1:
            raise TrainingFailed(f"the processes ended with {len(every)} different sets of parameters")


class Throughput:
    """Sequences per second over the last ten steps."""

    def __init__(self, sequences: int):
        self._sequences = sequences
        self._times: deque[float] = deque([time.monotonic()], maxlen=11)

    def next(self) -> float:
        self._times.append(time.monotonic())
        return (len(self._times) - 1) * self._sequences / (self._times[-1] - self._times[0])


def save(file: Path, model: Model, facts: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"model": model.weights.tolist(), **facts}))
    part.replace(file)


def load(file: Path, model: Model) -> dict[str, Any]:
    """Read a checkpoint into the model; returns its other values.

    Raises:
        TrainingFailed: the file is missing or not a checkpoint of these scripts.
    """
    try:
        state: dict[str, Any] = json.loads(file.read_text())
        model.weights[:] = array("d", state.pop("model"))  # JSON preserves floats exactly
    except (OSError, ValueError, KeyError) as problem:
        raise TrainingFailed(f"cannot resume from {file}: {problem}") from None
    return state


def run(train: Callable[[Collective], None]) -> int:
    """Join the job and train; returns the exit code. Errors are printed as one line."""
    try:
        collective = from_environment()
        try:
            train(collective)
        finally:
            collective.close()
    except (TrainingFailed, PeerLost, node.NodeError, AssertionError) as problem:
        rank = os.environ.get("RANK", "0")
        print(f"ERROR rank {rank} on {node.name()}: {problem}", file=sys.stderr, flush=True)
        return 1
    return 0
