"""Errors that a request is answered with."""

from __future__ import annotations

from pathlib import Path


class ReportedError(Exception):
    """An error with a message for the user, of one paragraph. `kind`: by which the client knows it."""

    kind = "refused"


class Refused(ReportedError):
    """The request is wrong, or cannot be done. Nothing was changed, and the same request is refused again."""


class Later(ReportedError):
    """Slurm does not answer. The same request, sent again, finishes what has begun."""

    kind = "later"


class Theirs(ReportedError):
    """The requested object belongs to another user."""

    kind = "theirs"


class Unknown(ReportedError):
    """There is no such job."""

    kind = "unknown"


class NoMember(ReportedError):
    """An array has no such member."""

    kind = "no member"


class Taken(ReportedError):
    """Another job has this id. It is not touched."""

    kind = "taken"


def place_of(error: Exception) -> str:
    """An unexpected error in one line: where it was raised, and its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f"{'/'.join(Path(trace.tb_frame.f_code.co_filename).parts[-2:])}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} in {at}: {str(error)[:300]}"
