"""What the views of `trn watch` share: frames in a terminal, keys, lines in a pipe."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.cli.output import answer

if TYPE_CHECKING:
    from rich.console import Console

REFRESH = 5
"""Seconds after which a browser loads the page again."""
FRAME = 0.5
"""Seconds between two frames in the terminal."""


_LONGEST_KEY, _REST = 8, 0.05
"""Bytes of a key that sends several, such as an arrow, and seconds until the next one of them."""


def lines(ended: threading.Event, text: Callable[[], str]) -> None:
    """Print the text when it has changed, until `ended`."""
    last = ""
    while not ended.wait(1):
        if (now := text()) != last:
            answer(now)
        last = now


def frames(
    draw: Callable[[int, int], Any], over: Callable[[], bool], press: Callable[[str], None] = lambda _: None
) -> Console:
    """Draw frames of a width and a height until it is over, or left; `press` gets the other keys. Returns the console."""
    from rich.console import Console
    from rich.live import Live as Screen

    console, draw = Console(), marked(draw)
    with keys() as pressed, Screen(console=console, auto_refresh=False, screen=True) as screen:
        while not over():
            screen.update(draw(*console.size), refresh=True)
            if (key := pressed(FRAME)) in ("q", "\x1b"):
                break
            press(key)
    return console


def marked(draw: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
    """What draws frames; in the sandbox their first line says so."""
    return (lambda width, height: of_sandbox(draw(width, height - 1))) if sandboxed() else draw


def of_sandbox(shown: Any) -> Any:
    """A view of the sandbox: its first line says so."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(SANDBOX, "bold black on yellow", overflow="ellipsis", no_wrap=True), shown)


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Waits so many seconds for a key, and returns it; empty if none was pressed, or keys cannot be read."""
    if not sys.stdin.isatty() or os.name != "posix":

        def none(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield none
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        key = os.read(descriptor, 1) if ready else b""
        while key[:1] == b"\x1b" and len(key) < _LONGEST_KEY and select.select([descriptor], [], [], _REST)[0]:
            key += os.read(descriptor, 1)
            if key[1:2] not in b"[O" or (len(key) > 2 and key[-1:].isalpha()) or key[-1:] == b"~":
                break
        return key.decode(errors="replace")

    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
