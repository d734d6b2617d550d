"""A small real model: softmax regression from one symbol of a text to the next, trained with Adam.

32 symbols, 1024 parameters, doubles. It trains on the text of the data set's files; the loss is the real cross-entropy.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Iterable

SYMBOLS = 32
SIZE = SYMBOLS * SYMBOLS
STEP_SIZE = 0.15
"""Adam's learning rate for this small model. The logs show the command line's learning rate schedule instead."""

_LETTERS = {**{ord(c): i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}, ord(" "): 26, ord("."): 27, ord(","): 28}
_SYMBOL_OF = [_LETTERS.get(code, 29 + code % 3) for code in range(256)]


class Batch:
    """Counts of (symbol, next symbol) pairs in blocks of text."""

    def __init__(self) -> None:
        self.counts = array("d", bytes(8 * SIZE))
        self.pairs = 0

    def add(self, text: bytes | memoryview) -> None:
        """Count the block's pairs: bytes 0 and 1, 2 and 3, and so on."""
        pairs = memoryview(text)[: len(text) // 2 * 2].cast("H")
        for pair, times in Counter(pairs.tolist()).items():
            # The low byte first: these machines are little endian.
            self.counts[_SYMBOL_OF[pair & 255] * SYMBOLS + _SYMBOL_OF[pair >> 8]] += times
        self.pairs += len(pairs)


class Model:
    """Parameters and Adam's state. The same steps from the same start are bit-identical on every machine."""

    def __init__(self) -> None:
        self.weights = array("d", bytes(8 * SIZE))
        self._first = array("d", bytes(8 * SIZE))
        self._second = array("d", bytes(8 * SIZE))
        self._steps = 0

    def gradient(self, batch: Batch) -> tuple[float, array[float]]:
        """Summed loss (nats) and its gradient over a batch."""
        loss = 0.0
        gradient = array("d", bytes(8 * SIZE))
        for row in range(0, SIZE, SYMBOLS):
            counts = batch.counts[row : row + SYMBOLS]
            total = sum(counts)
            if not total:
                continue
            logits = self.weights[row : row + SYMBOLS]
            exps = [math.exp(logit) for logit in logits]
            norm = sum(exps)
            loss += total * math.log(norm) - sum(n * logit for n, logit in zip(counts, logits, strict=True))
            for i in range(SYMBOLS):
                gradient[row + i] = total * exps[i] / norm - counts[i]
        return loss, gradient

    def step(self, gradient: Iterable[float]) -> float:
        """One step of Adam with the mean gradient; returns the norm of the gradient."""
        self._steps += 1
        fix1, fix2 = 1 - 0.9**self._steps, 1 - 0.999**self._steps
        square = 0.0
        for i, g in enumerate(gradient):
            square += g * g
            self._first[i] = 0.9 * self._first[i] + 0.1 * g
            self._second[i] = 0.999 * self._second[i] + 0.001 * g * g
            self.weights[i] -= STEP_SIZE * (self._first[i] / fix1) / (math.sqrt(self._second[i] / fix2) + 1e-8)
        return math.sqrt(square)

    def checksum(self) -> str:
        """SHA-256 of the parameters."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()

    def state(self) -> dict[str, object]:
        return {
            "weights": self.weights.tolist(),
            "first": self._first.tolist(),
            "second": self._second.tolist(),
            "steps": self._steps,
        }

    def load(self, state: dict[str, list[float] | int]) -> None:
        """Restore a saved state. JSON preserves floats exactly."""
        for name, vector in (("weights", self.weights), ("first", self._first), ("second", self._second)):
            values = state[name]
            assert isinstance(values, list)  # noqa: S101  written by `state`
            vector[:] = array("d", values)
        steps = state["steps"]
        assert isinstance(steps, int)  # noqa: S101
        self._steps = steps
