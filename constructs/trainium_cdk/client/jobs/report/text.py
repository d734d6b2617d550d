"""Values as people read them."""

from __future__ import annotations

import datetime as dt


def duration(seconds: float | None, unknown: str = "not known") -> str:
    """A time span, with its two largest units; 0 s for a negative one, as of a clock that is behind the cluster's.

    >>> [duration(s) for s in (-5, 0.4, 59, 61, 3_725, 100_000)]
    ['0 s', '0 s', '59 s', '1 min 1 s', '1 h 2 min', '1 d 3 h']
    """
    if seconds is None:
        return unknown
    left = max(0, round(seconds))
    units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
    parts = []
    for unit, size in units:
        count, left = divmod(left, size)
        parts.append(f"{count} {unit}")
    first = next((i for i, part in enumerate(parts) if not part.startswith("0 ")), len(parts) - 1)
    return " ".join(part for part in parts[first : first + 2] if part == parts[first] or not part.startswith("0 "))


def moment(seconds: float | None, unknown: str = "not known") -> str:
    """A time in UTC, to the minute."""
    return unknown if seconds is None else f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"


def dollars(amount: float) -> str:
    """An amount in USD."""
    return f"{amount:,.2f} USD"


_LATE = 30.0
"""Seconds without an answer after which the text says so."""


def late(seconds: float, problem: str) -> str:
    """Describe for how long the cluster has not answered; empty if it answers.

    Args:
        seconds: since its last answer.
        problem: why it does not answer; empty if that is not known, or it does.

    >>> late(5, ""), late(100, ""), late(100, "the head node does not answer")
    ('', 'no answer for 1 min 40 s, still trying', 'no answer for 1 min 40 s, still trying: the head node does not answer')
    """
    if not problem and seconds <= _LATE:
        return ""
    return f"no answer for {duration(seconds)}, still trying" + (f": {problem}" if problem else "")
