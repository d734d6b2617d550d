"""All clusters of an account, followed in the background: each by itself, so that one that does not answer delays no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.backend import Backend
from trainium_cdk.jobs.clusters import Backends, Overview, ask, reach, unasked, with_alarms
from trainium_cdk.outputs.read import Deployed, deployed

_SEARCH = 60.0
"""Seconds between two searches for stacks in a region."""
_PAUSE = 15.0
"""Least seconds between two requests to a cluster. With more clusters than that, there is one request a second for all together."""
_LONGEST = 120.0
"""Most seconds until one that does not answer is asked again; and from the last look at the figures on, until nothing is asked."""
_TICK = 0.5


class Board(NamedTuple):
    """What is known now.

    Attributes:
        notes: why regions could not be read.
        complete: whether every region was read, or refused.
    """

    clusters: list[Overview]
    notes: list[str]
    complete: bool


def pause_after(least: float, clusters: int, took: float, failures: int) -> float:
    """Seconds until a cluster is asked again.

    Args:
        clusters: that are followed. took: seconds of the last answer. failures: one after the other.

    >>> [pause_after(15, *case) for case in ((3, 2, 0), (40, 2, 0), (3, 20, 0), (3, 2, 2), (3, 2, 8))]
    [15.0, 40.0, 60.0, 60.0, 120.0]
    """
    pause = max(least, clusters * least / _PAUSE, 3 * took)
    return float(min(pause * 2.0**failures, max(pause, _LONGEST)))


class LiveClusters:
    """The clusters of some regions.

    Args:
        pause: seconds; see `_PAUSE`.
    """

    def __init__(self, regions: Sequence[str], catalog: Catalog | None = None, *, pause: float = _PAUSE):
        import boto3  # noqa: F401  before threads use it

        self.regions, self._catalog, self._pause = list(regions), catalog or Catalog.load(), pause
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._stacks: dict[str, Deployed] = {}
        self._found: dict[str, Overview] = {}
        self._ways: dict[str, Backends] = {}
        self._notes: dict[str, str] = {}
        self._followed: set[str] = set()
        self._looked = time.monotonic()

    def __enter__(self) -> Self:
        for region in self.regions:
            self._start(self._search, region)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def board(self) -> Board:
        """What is known now. If it is not called for two minutes, nothing is asked until it is."""
        with self._lock:
            self._looked = time.monotonic()
            found = sorted(self._found.values(), key=lambda one: one.key)
            notes = [note for _, note in sorted(self._notes.items()) if note]
            return Board(found, notes, len(self._notes) == len(self.regions))

    def way(self, key: str, team: str = "") -> Backend[Any]:
        """The way to a cluster's jobs.

        Raises:
            TrnError: it has not answered yet.
        """
        with self._lock:
            found = self._ways.get(key, {}).get(team)
            note = self._found[key].note if key in self._found else ""
        if found is None:
            raise TrnError(f"{key} has not answered yet{f': {note}' if note else ''}. Try again when it has")
        return found

    def _start(self, follow: Callable[[str], None], what: str) -> None:
        threading.Thread(target=follow, args=(what,), daemon=True).start()

    def _wanted(self, seconds: float) -> bool:
        """Wait, and then until the figures are looked at; False if it is to end."""
        if self._stopped.wait(seconds):
            return False
        while time.monotonic() - self._looked > _LONGEST:
            if self._stopped.wait(_TICK):
                return False
        return True

    def _search(self, region: str) -> None:
        wait = 0.0
        while self._wanted(wait):
            wait = _SEARCH
            try:
                every = with_alarms(deployed(region), region)
            except TrnError as e:
                with self._lock:
                    self._notes[region] = str(e)
                continue
            with self._lock:
                stacks = {f"{one.region}/{one.name}": one for one, _ in every}
                self._notes[region] = ""
                gone = [key for key, one in self._stacks.items() if one.region == region and key not in stacks]
                for key in gone:
                    del self._stacks[key], self._found[key]
                    self._ways.pop(key, None)
                for one, alarms in every:
                    new_one = unasked(one, alarms)
                    self._found[new_one.key] = replace(self._found.get(new_one.key, new_one), alarms=alarms)
                self._stacks |= stacks
                new = stacks.keys() - self._followed
                self._followed |= new
            for key in new:
                self._start(self._follow, key)

    def _follow(self, key: str) -> None:
        wait, failures = 0.0, 0
        ways: Backends | None = None
        was: Deployed | None = None
        while self._wanted(wait):
            with self._lock:
                stack, seen = self._stacks.get(key), self._found.get(key)
                clusters = len(self._stacks)
                if stack is None or seen is None:
                    self._followed.discard(key)
                    return
            began = time.monotonic()
            try:
                if ways is None or stack != was:
                    ways, was = reach(stack), stack
                now, failures = ask(ways, replace(seen, state=stack.status), self._catalog), 0
            except TrnError as e:
                ways, failures = None, min(failures + 1, 8)  # a tunnel may be gone
                now = replace(seen, state=stack.status, note=str(e))
            with self._lock:
                if key in self._found:
                    self._found[key] = replace(now, alarms=self._found[key].alarms)
                    if ways:
                        self._ways[key] = ways
            wait = pause_after(self._pause, clusters, time.monotonic() - began, failures)
