"""Whose work runs or waits on a cluster, as it ends with the cluster; and ending the jobs before that."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, Protocol

from trainium_cdk.text import counted, duration, join_words

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.backend import Backend
    from trainium_cdk.client.jobs.status import JobStatus


Fate = Literal["cancel", "wait", "ignore"]
"""cancel: cancel the jobs. wait: wait until they have ended. ignore: they end with the cluster."""


@dataclass(frozen=True)
class Occupant:
    """A job of anyone.

    Attributes:
        owner: `user alice`, `team speech`, or the client that made it where its user is not known.
        seconds: for which it has run; None if it waits, or that is not known.
        own: whether it is a job of the caller.
    """

    name: str
    owner: str
    state: str
    seconds: float | None
    own: bool


def occupants(
    backend: Backend, me: str, team: str = "", now: float | None = None, *, waits: bool = False
) -> list[Occupant]:
    """The jobs that end with the cluster: jobs of `trn` that run or wait, and what other clients run or queue there.

    Args:
        me: the caller's user name, as `trn submit` records it.
        team: whose namespace it is.
        waits: whether the deletion waits for the jobs of `trn`, so that they do not end with it.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    now = time.time() if now is None else now
    active = () if waits else backend.active()
    join_words = backend.list(1000) if active else ()
    # users may give their jobs the same id; of the caller's own, `active` has another name of the user
    told = {(job.id, job.user): job for job in join_words}
    own = {job.id: job for job in reversed(join_words)}
    found = []

    def add(name: str, user: str, client: str, state: str, started: int | None) -> None:
        who = f"user {user}" if user else f"unknown user of {client}"
        owner = f"team {team}, {who}" if team else who
        seconds = max(0.0, now - started) if started and state != "PENDING" else None
        found.append(Occupant(name, owner, state, seconds, own=bool(user) and user == me))

    for one in active:
        job = told.get((one.id, one.user)) or own.get(one.id, one)
        add(job.id, job.user, "trn", job.state, job.current.started)
    for other in backend.others():
        add(other.name, other.user, other.kind, other.state, other.started)
    return found


def lines(occupants: Iterable[Occupant]) -> Iterator[str]:
    """Describe lost jobs by owner, as lines of text: own jobs, then each other owner's. No line if there are no jobs."""
    for own, name in ((True, "yours"), (False, "of others")):
        mine = sorted((one for one in occupants if one.own is own), key=lambda one: one.owner)
        for owner, group in groupby(mine, key=lambda one: one.owner):
            jobs = list(group)
            waiting = sum(one.state == "PENDING" for one in jobs)
            counts = [f"{n} {what}" for n, what in ((len(jobs) - waiting, "running"), (waiting, "waiting")) if n]
            longest = max(
                (one for one in jobs if one.seconds is not None), key=lambda one: one.seconds or 0, default=None
            )
            since = f"; longest: {longest.name}, for {duration(longest.seconds)}" if longest else ""
            yield f"   ends with it, {name} ({owner}): {join_words(counts)}{since}"


class JobCanceller(Protocol):
    """The part of a backend that is used here."""

    def active(self) -> tuple[JobStatus, ...]: ...

    def cancel(self, id: str) -> JobStatus: ...


def end(
    jobs: JobCanceller,
    fate: Fate,
    say: Callable[[str], None],
    *,
    interval: float = 30,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Cancel the jobs that run or wait, or wait for their end. If one cannot be cancelled, report the reason, and cancel the next one.

    Raises:
        TransportError: the cluster does not respond.
    """
    from trainium_cdk.errors import TransportError, TrnError, UnknownJob

    running = jobs.active()
    if fate == "cancel":
        for job in running:
            say(f"cancelling job {job.id} ({job.state})")
            try:
                with contextlib.suppress(UnknownJob):  # its record is damaged or deleted
                    jobs.cancel(job.id)
            except TrnError as e:
                if isinstance(e, TransportError):
                    jobs.active()  # does the cluster respond at all?
                say(f"job {job.id} was not cancelled, and ends with the cluster: {e}")
    while fate == "wait" and running:
        say(f"waiting for {counted(len(running), 'job')}: {', '.join(job.id for job in running[:5])}")
        sleep(interval)
        running = jobs.active()
