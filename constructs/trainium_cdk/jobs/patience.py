"""Asking again after a failure, with pauses that grow."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from trainium_cdk.errors import TransportError

LONGEST_PAUSE = 30.0
ONE_QUESTION = 30.0
"""Seconds that a single question is repeated for."""
FOLLOWING = 900.0
"""Seconds without any answer after which one who follows a job gives up: longer than a head node's restart."""


class Patience:
    """How long to go on without an answer. Any number of failures is borne as long as each is made good in time."""

    def __init__(
        self,
        seconds: float,
        *,
        first: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ):
        """
        Args:
            seconds: from the first failure in a row on, until the failure is passed on.
            first: seconds of the first pause; each is about twice the one before.
        """
        self._seconds, self._first, self._sleep, self._clock = seconds, first, sleep, clock
        self._pause, self._since = first, clock()

    def answered(self) -> None:
        """All is well: the next failure is the first."""
        self._pause, self._since = self._first, self._clock()

    def failed(self, error: TransportError) -> None:
        """Pause, or pass the error on where asking again is of no use, or has been of none for long enough."""
        if not error.again or self._clock() - self._since + self._pause > self._seconds:
            raise error
        self._sleep(self._pause * random.uniform(0.75, 1.25))  # noqa: S311  so that many clients do not come at once
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
