"""A line in text: letters of Braille have 2 x 4 points each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """The line through points, in their order of x, as `height` lines of `width` letters. The lowest value is at the bottom.

    >>> plot([(0, 0), (1, 1), (2, 2), (3, 3)], 2, 1)
    ['⡠⠊']
    """
    return overlay([points], width, height)


def overlay(lines: Sequence[Sequence[tuple[float, float]]], width: int, height: int) -> list[str]:
    """Several lines over each other, as `plot`, with common axes."""
    cells = [[0] * width for _ in range(height)]
    across, down = 2 * width, 4 * height
    xs = [x for points in lines for x, _ in points]
    drawn = [_columns(points, across, min(xs), max(xs)) for points in lines if points]
    values = [value for columns in drawn for value in columns if value is not None]
    if not values:
        return [" " * width] * height
    low, high = min(values), max(values)
    differ = high - low > 1e-9 * max(abs(low), abs(high))  # means of one value differ in their last digit
    before = None
    for x, value in ((x, value) for columns in drawn for x, value in enumerate(columns)):
        before = None if x == 0 else before
        if value is None:
            continue
        y = round((value - low) / (high - low) * (down - 1)) if differ else 0
        steps = range(min(before, y) + 1, max(before, y)) if before is not None else ()
        for at in (*steps, y):
            row = down - 1 - at
            cells[row // 4][x // 2] |= _DOTS[row % 4][x % 2]
        before = y
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def _columns(points: Sequence[tuple[float, float]], count: int, first: float, last: float) -> list[float | None]:
    """The mean value of the points in each column, of which the first begins at `first`; between points, values are joined."""
    sums = [(0.0, 0)] * count
    for x, value in points:
        at = min(count - 1, int((x - first) / (last - first) * count)) if last > first else 0
        total, number = sums[at]
        sums[at] = total + value, number + 1
    found: list[float | None] = [total / number if number else None for total, number in sums]
    known = [i for i, value in enumerate(found) if value is not None]
    for left, right in pairwise(known):
        begin, end = found[left] or 0.0, found[right] or 0.0
        for i in range(left + 1, right):
            found[i] = begin + (end - begin) * (i - left) / (right - left)
    return found
