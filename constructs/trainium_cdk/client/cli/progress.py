"""The progress of what takes a while, on standard error: a bar or a line with the elapsed time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

from trainium_cdk.client.cli.named import length
from trainium_cdk.client.cli.output import clean, draws, log

EVERY = 10.0
"""Seconds between two plain lines of a bar."""
FIRST, LONGEST = 2.0, 60.0
"""Seconds until the first plain line of `working`, and at most between two: each pause is twice the last one."""


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


class Working:
    """The progress line of a long operation, such as `deleting S: 34 of 61 resources, 3m 10s`."""

    def __init__(self, what: str) -> None:
        self._what, self._at, self._began = what, "", time.monotonic()

    def at(self, done: str) -> None:
        """Set the progress so far, such as `3 of 12 resources`."""
        self._at = done

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        return f"{self._what}: {', '.join(filter(None, (self._at, length(self.seconds))))}"


@contextlib.contextmanager
def working(what: str, *, alone: bool = True) -> Iterator[Working]:
    """Show that a command works, if it takes longer than 2 s: live on a terminal, as lines elsewhere.

    Args:
        what: what is done.
        alone: nothing else writes to the terminal meanwhile but `log`. Otherwise nothing is shown there.
    """
    shown = Working(what)
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        if not draws(sys.stderr):
            threading.Thread(target=_lines, args=(shown, ended), daemon=True).start()
            stack.callback(ended.set)
        elif alone:
            stack.enter_context(_live(shown))
        yield shown


def _lines(shown: Working, ended: threading.Event) -> None:
    pause = FIRST
    while not ended.wait(pause):
        log(str(shown))
        pause = min(2 * pause, LONGEST)


def _live(shown: Working) -> contextlib.AbstractContextManager[object]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def frame() -> Text:
        turn = "|/-\\"[int(shown.seconds * 5) % 4]
        return Text(f"{turn} {clean(str(shown))}", overflow="ellipsis", no_wrap=True)

    # soft_wrap: what is said meanwhile is not broken into lines, so that commands in it can be copied
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    return Live(get_renderable=frame, console=console, transient=True, refresh_per_second=5)
