"""Retrying failed requests, with growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from trainium_cdk.errors import TransportError

T = TypeVar("T")

LONGEST_PAUSE = 30.0
ONE_QUESTION = 30.0
"""Seconds for which a single request is retried."""
CONTROLLER = 90.0
"""The same while Slurm's controller does not answer: a restart may take a minute, of which Slurm's commands wait up to their MessageTimeout."""
FOLLOWING = 900.0
"""Seconds without a response after which following a job fails: longer than a head node's restart."""


def until(
    look: Callable[[], T], seconds: float, *, pause: float = 0.5, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What `look` finds, which is repeated until that is true, or the time is over."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        sleep(pause)
    return found


class Patience:
    """Limits retries by time: any number of failures is allowed if a response follows each within `seconds`."""

    def __init__(
        self,
        seconds: float,
        *,
        first: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """Args:
        seconds: from the last response, or the beginning, until the error is raised; at least `CONTROLLER` for one of Slurm's controller.
        first: seconds of the first pause; each is about twice the one before.
        """
        self._seconds, self._first, self._sleep = seconds, first, sleep
        self._pause, self._since = first, time.monotonic()

    def ask(self, request: Callable[[], T]) -> T:
        """The response to a request, which is sent again after each failure. Raises as `failed` does."""
        while True:
            try:
                found = request()
            except TransportError as e:
                self.failed(e)
            else:
                self.answered()
                return found

    def answered(self) -> None:
        """Reset after a response: the next failure is the first."""
        self._pause, self._since = self._first, time.monotonic()

    def failed(self, error: TransportError) -> None:
        """Pause before the next attempt. Raises the error if it is permanent, or the time is over."""
        seconds = max(self._seconds, CONTROLLER) if error.restarting else self._seconds
        if not error.again or time.monotonic() - self._since + self._pause > seconds:
            raise error
        self._sleep(self._pause * random.uniform(0.75, 1.25))  # noqa: S311  so that clients do not retry all at once
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
