"""Signals that the batch script of a stage gets: noted at once, acted on where it can be."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_STEP = 0.25


class Stopped(Exception):
    """The batch script got a signal to end."""


class Signals:
    """The signals that would end this process.

    Attributes:
        told: number of the first of them; 0: none yet. SIGTERM is Slurm's.
    """

    def __init__(self) -> None:
        self.told = 0

    def install(self) -> None:
        for number in _ENDS:
            signal.signal(number, self._note)

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            Stopped: a signal came.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(_STEP, left))
        self.check()

    def check(self) -> None:
        if self.told:
            raise Stopped

    def _note(self, number: int, _: object) -> None:
        self.told = self.told or number


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold signals until the end. None reaches this process or a program that it starts: Slurm sends them to all processes of a job."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
