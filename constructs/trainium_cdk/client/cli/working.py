"""A line on standard error while a command works: elapsed time and progress."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from trainium_cdk.client.cli.named import length
from trainium_cdk.client.cli.output import clean, draws, log

FIRST, LONGEST = 2.0, 60.0
"""Seconds until the first plain line, and at most between two: each pause is twice the last one."""


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
