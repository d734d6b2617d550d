"""Values of a job's fields: time limits, and the errors about any value."""

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from trainium_cdk.text import Text

_TIME = Text(
    r"^([0-9]{1,9}|([0-9]{1,5}-)?[0-9]{1,5}(:[0-9]{2}){0,2}|([0-9]{1,9}[dhms]){1,4})$",
    "minutes, or HH:MM:SS, or D-HH:MM:SS, or 90m, 12h, 2d",
    "2-00:00:00",
    max_length=20,
)
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_MAX_DAYS = 365


def wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("trn", "{message}", {"message": message})


def shown(value: object) -> str:
    text = repr(value[:100] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def seconds(limit: str) -> int:
    """A time limit in seconds, in Slurm's formats, or with units: a number alone is minutes, `1:30` is minutes and seconds.

    >>> seconds("90"), seconds("1:30"), seconds("2:00:00"), seconds("1-12"), seconds("1-00:30"), seconds("1h30m")
    (5400, 90, 7200, 129600, 88200, 5400)
    """
    if parts := re.findall("([0-9]+)([dhms])", limit):
        return sum(int(count) * _UNITS[unit] for count, unit in parts)
    days, dash, rest = limit.rpartition("-")
    numbers = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, secs = [*numbers, 0, 0][:3]
    elif len(numbers) == 1:
        hours, minutes, secs = 0, numbers[0], 0
    else:
        hours, minutes, secs = [0, *numbers][-3:]
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + secs


def _possible(limit: str) -> str:
    """Refuses a limit that Slurm reads as no limit (0), or cannot store."""
    if any(int(part) >= 60 for part in limit.split(":")[1:]):
        raise wrong(
            f"time_limit is {shown(limit)}: minutes and seconds after a colon are at most 59. Write {_TIME.fix}"
        )
    if not 60 <= seconds(limit) <= _MAX_DAYS * 86_400:
        raise wrong(
            f"time_limit is {shown(limit)}: it must be at least 1 minute and at most {_MAX_DAYS} days. "
            f"Write {_TIME.fix}"
        )
    return limit


TimeLimit = Annotated[str, _TIME, AfterValidator(_possible)]
