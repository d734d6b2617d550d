"""What an answer can be instead of an answer: `kind` tells the client what to make of it."""

from __future__ import annotations

from pathlib import Path


class Told(Exception):
    """Something that the user is told in one paragraph. `kind`: see `ask`."""

    kind = "refused"


class Refused(Told):
    """The request is wrong, or cannot be done. Nothing was changed, and the same request is refused again."""


class Later(Told):
    """Slurm does not answer. The same request, sent again, finishes what has begun."""

    kind = "later"


class Theirs(Told):
    """What was asked for belongs to another user."""

    kind = "theirs"


class Unknown(Told):
    """There is no such job."""

    kind = "unknown"


class Taken(Told):
    """The id is that of another job, which is not touched."""

    kind = "taken"


def place_of(error: Exception) -> str:
    """An error that nobody has thought of, in one line: where it was, and what it says."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f"{'/'.join(Path(trace.tb_frame.f_code.co_filename).parts[-2:])}:{trace.tb_lineno}" if trace else "?"
    return f"{type(error).__name__} in {at}: {str(error)[:300]}"
