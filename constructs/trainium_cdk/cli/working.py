"""A line on standard error while a command works: elapsed time, progress, and an estimate from earlier runs here."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainium_cdk.cli.named import length
from trainium_cdk.cli.output import log, write_file
from trainium_cdk.cli.terminal import clean, draws
from trainium_cdk.errors import TrnError

FIRST, LONGEST = 2.0, 60.0
"""Seconds until the first plain line, and at most between two: each pause is twice the last one."""
_RUNS, _KEYS = 5, 200


class Working:
    """What is shown.

    Attributes:
        counts: whether its duration is a measure for later runs. Default: yes, unless it ends with an error.
    """

    def __init__(self, what: str, past: Sequence[float]) -> None:
        self.counts = True
        self._what, self._past, self._at = what, past, ""
        self._began = time.monotonic()

    def at(self, done: str) -> None:
        """What is done by now, such as `3 of 12 resources`."""
        self._at = done

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        return line(self._what, self.seconds, self._past, self._at)


@contextlib.contextmanager
def working(what: str, key: str = "", *, alone: bool = True) -> Iterator[Working]:
    """Show that something goes on, if it takes longer than 2 s: live on a terminal, as lines elsewhere.

    Args:
        what: what is done.
        key: command and stack, for the durations of earlier runs. Default: none are kept.
        alone: nothing else writes to the terminal meanwhile but `say`. Otherwise it gets one line, if there were earlier runs.
    """
    past = durations().get(key, [])
    shown = Working(what, past)
    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        if not draws(sys.stderr):
            threading.Thread(target=_lines, args=(shown, ended), daemon=True).start()
            stack.callback(ended.set)
        elif alone:
            stack.enter_context(_live(shown))
        elif past:
            log(str(shown))
        yield shown
    if key and shown.counts:
        _note(key, shown.seconds)


def line(what: str, seconds: float, past: Sequence[float], at: str = "") -> str:
    """What is shown.

    Args:
        seconds: since it began.
        past: seconds that earlier runs took; without them nothing is said of the time that is left.

    >>> line("deleting S", 190, [300, 320, 310], "34 of 61 resources")
    'deleting S: 34 of 61 resources, 3m 10s, about 2m left (3 earlier runs here)'
    >>> line("deleting S", 190, [60]), line("deleting S", 190, [])
    ('deleting S: 3m 10s, longer than the 1m of earlier runs here', 'deleting S: 3m 10s')
    """
    parts = [at, length(seconds)]
    if past:
        usual = sorted(past)[len(past) // 2]
        runs = f"{len(past)} earlier run{'s' * (len(past) != 1)} here"
        parts.append(
            f"about {length(usual - seconds)} left ({runs})"
            if usual > seconds
            else f"longer than the {length(usual)} of earlier runs here"
        )
    return f"{what}: {', '.join(filter(None, parts))}"


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


def durations() -> dict[str, list[float]]:
    """Command and stack -> seconds of its last runs on this machine, the newest last; empty if none were kept."""
    try:
        found = json.loads(_place().read_text("utf-8"))
        return {str(key): [float(s) for s in runs] for key, runs in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _note(key: str, seconds: float) -> None:
    """Keep a duration. It only helps: if the folder cannot be written, nothing is kept."""
    known = durations()
    runs = [*known.pop(key, []), round(seconds, 1)][-_RUNS:]
    place = _place()
    with contextlib.suppress(OSError, TrnError):
        place.parent.mkdir(parents=True, exist_ok=True)
        kept = dict([*known.items(), (key, runs)][-_KEYS:])
        write_file(place, json.dumps(kept, indent=1) + "\n", 0o600)


def _place() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "trainium-cdk" / "durations.json"
