"""Known errors: the line that tells of one, what it means and what to do. `trn why`, `status` and `logs` use the same table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, cached_property

from pydantic import BaseModel, ConfigDict, Field

from trainium_cdk.catalog.files import read

LONGEST_LINE = 4000
"""Characters of a line that are read: what is searched was written by others."""


class KnownError(BaseModel):
    """A known error; `samples` are lines of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    pattern: str = Field(description="regular expression, searched in one line")
    cause: str
    fix: str
    samples: tuple[str, ...] = Field(min_length=1)
    source: str

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def is_in(self, line: str) -> bool:
        return self._expression.search(line[:LONGEST_LINE]) is not None

    def __str__(self) -> str:
        return f"{self.cause}. {self.fix[0].upper()}{self.fix[1:]}"


@cache
def known_errors() -> tuple[KnownError, ...]:
    """In their order: the first whose pattern is in a line counts."""
    return tuple(KnownError(**entry) for entry in read("known_errors")["errors"])


def explain(line: str) -> KnownError | None:
    """The known error that a line tells of."""
    return next((error for error in known_errors() if error.is_in(line)), None)


def found_in(lines: Iterable[str]) -> dict[str, tuple[KnownError, str]]:
    """The known errors of a text by name, each with its first line, in the order of the text."""
    found: dict[str, tuple[KnownError, str]] = {}
    for line in lines:
        error = explain(line)
        if error and error.name not in found:
            found[error.name] = (error, line.strip())
    return found
