"""A small real model: how often each symbol of a text follows another, learned as a moving average over the steps.

32 symbols, 1024 parameters. It learns from the text of the data set's files; the loss is the real cross-entropy.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Sequence

SYMBOLS = 32
SIZE = SYMBOLS * SYMBOLS
SHARE = 0.15
"""Change of the loss at a step, in the average. The logs show the command line's learning rate schedule instead."""

_LETTERS = {**{ord(c): i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}, ord(" "): 26, ord("."): 27, ord(","): 28}
_SYMBOL_OF = [_LETTERS.get(code, 29 + code % 3) for code in range(256)]


def counted(text: bytes | memoryview, counts: array[float]) -> None:
    """Count the block's pairs of symbols: bytes 0 and 1, 2 and 3, and so on."""
    for pair, times in Counter(memoryview(text)[: len(text) // 2 * 2].cast("H").tolist()).items():
        # The low byte first: these machines are little endian.
        counts[_SYMBOL_OF[pair & 255] * SYMBOLS + _SYMBOL_OF[pair >> 8]] += times


class Model:
    """The share of each pair. The same steps from the same start are bit-identical on every machine."""

    def __init__(self) -> None:
        self.weights = array("d", [1 / SIZE] * SIZE)

    def step(self, counts: Sequence[float]) -> tuple[float, float]:
        """Learn from the pairs of a step; its mean loss (nats) before that, and the length of the change."""
        pairs, loss, square = sum(counts), 0.0, 0.0
        for row in range(0, SIZE, SYMBOLS):
            of_row = math.fsum(self.weights[row : row + SYMBOLS])
            for i in range(row, row + SYMBOLS):
                if counts[i]:
                    loss -= counts[i] / pairs * math.log(self.weights[i] / of_row)
        for i, count in enumerate(counts):
            change = SHARE * (count / pairs - self.weights[i])
            self.weights[i] += change
            square += change * change
        return loss, math.sqrt(square)

    def checksum(self) -> str:
        """SHA-256 of the parameters."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()
