"""The progress of what takes a while, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Literal

from trainium_cdk.client.cli.named import length
from trainium_cdk.client.cli.output import draws, log

EVERY = 10.0
"""Seconds between two plain lines."""


class ProgressBar:
    """`with Progress("copying", unit="bytes")(total): ...`, which reports what is added by `add`, from any thread.

    Args:
        what: what is done.
        unit: of the numbers.
    """

    def __init__(self, what: str, unit: Literal["bytes", "steps"] = "steps") -> None:
        self._what, self._unit = what, unit
        self._done, self._total, self._bar = 0, 0, None  # type: int, int, Any
        self._began = self._logged = 0.0
        self._lock = threading.Lock()

    def __call__(self, total: int) -> ProgressBar:
        self._total = total
        return self

    def __enter__(self) -> ProgressBar:
        self._began = self._logged = time.monotonic()
        if draws(sys.stderr) and self._total:
            self._bar = _bar(self._unit)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def add(self, number: int) -> None:
        """Count what is done."""
        with self._lock:
            self._done += number
            now = time.monotonic()
            if self._bar:
                self._bar.update(self._task, completed=self._done)
            elif self._began and now - self._logged > EVERY:
                self._logged = now
                log(self._line(now - self._began))

    def _line(self, seconds: float) -> str:
        rate = self._done / seconds
        left = f", {length((self._total - self._done) / rate)} left" if rate and self._done < self._total else ""
        if self._unit == "bytes":
            return f"{self._what}: {size(self._done)} of {size(self._total)}, {size(int(rate))}/s{left}"
        return f"{self._what}: {self._done:,} of {self._total:,}{left}"


def _bar(unit: str) -> Any:
    from rich import progress
    from rich.console import Console

    numbers: list[Any] = (
        [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        if unit == "bytes"
        else [progress.MofNCompleteColumn()]
    )
    columns = [
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        *numbers,
        progress.TimeRemainingColumn(),
    ]
    return progress.Progress(*columns, console=Console(stderr=True))


def size(number: int) -> str:
    """A number of bytes.

    >>> size(1), size(1500), size(2_345_678_901)
    ('1 byte', '1.5 kB', '2.3 GB')
    """
    if number < 1000:
        return f"{number} byte{'s' * (number != 1)}"
    power = min(4, (len(str(number)) - 1) // 3)
    return f"{number / 1000**power:.1f} {('', 'kB', 'MB', 'GB', 'TB')[power]}"
