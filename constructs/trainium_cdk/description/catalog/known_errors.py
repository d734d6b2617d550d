"""Known errors: the line that tells of one, what it means and what to do. `trn why`, `status`, `logs` and `report` use the same tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainium_cdk.description.catalog.lookup import read

LONGEST_LINE = 4000
"""Characters of a line that are read: what is searched was written by others."""
_STATUS = r"\b(?:[nN][rR][tT]|NMGR:|Inference completed|Neuron Runtime:).{0,300}?\b(?:(?:status|err|error)(?:[_ ]code)?|code|ret|returned)\b\W{1,3}(?:%s)\b(?!\.?\d)"
"""Form of a status number in the output of the Neuron runtime and its callers."""
_WORDS = r"NRT EXECUTION FAILED: .{0,300}?(?:%s)"
"""Form of a status in words, on the second line of TorchNeuron's exception."""
_OF_A_CALL = r"Failed to [\w ]{0,40}\b(?:NEFF|model|tensor)\b[\w ]{0,40}\. Status: (?:%s)\b"
"""Form of the status of one call in TorchNeuron's output."""


class KnownError(BaseModel):
    """A known error; `samples` are lines of it, `others` lines that only look like it.

    Attributes:
        nrt: the statuses of the Neuron runtime that tell of it, too, by name.
        warning: programs that work print it too, or it follows from another process: it is a cause only where nothing else explains
            the end.
        several_nodes: it means something only in a job of several nodes.
        at_end: it means something only as the last line of a log.
        minutes: the group `minutes` of the pattern must be at least this.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    pattern: str = Field(description="regular expression, searched in one line")
    cause: str
    fix: str
    samples: tuple[str, ...] = Field(min_length=1)
    others: tuple[str, ...] = ()
    nrt: tuple[str, ...] = ()
    warning: bool = False
    several_nodes: bool = False
    at_end: bool = False
    minutes: float | None = None
    source: str

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def is_in(self, line: str) -> bool:
        found = self._expression.search(line[:LONGEST_LINE])
        return found is not None and (self.minutes is None or float(found["minutes"]) >= self.minutes)

    def __str__(self) -> str:
        return f"{self.cause}. {self.fix[0].upper()}{self.fix[1:]}"


@cache
def known_errors() -> tuple[KnownError, ...]:
    """Return the known errors of stacks, nodes and schedulers, in order. The first whose pattern is in a line counts."""
    return tuple(KnownError(**entry) for entry in read("known_errors")["errors"])


@cache
def job_errors() -> tuple[KnownError, ...]:
    """Return the known errors of a job's log, in order."""
    data = read("job_errors")
    return tuple(_of_job(entry, data["nrt_status"]) for entry in data["errors"]) + known_errors()


def _of_job(entry: Mapping[str, Any], statuses: Mapping[str, Mapping[str, Any]]) -> KnownError:
    """An entry whose pattern also finds the names, numbers and words of its statuses."""
    patterns = [entry["pattern"].strip()] if "pattern" in entry else []
    if names := entry.get("nrt"):
        numbers = "|".join(str(statuses[name]["number"]) for name in names)
        words = "|".join(re.escape(statuses[name]["words"]) for name in names)
        patterns += [rf"\b(?:{'|'.join(names)})\b", _STATUS % numbers, _OF_A_CALL % numbers, _WORDS % words]
    return KnownError(**{**entry, "pattern": "|".join(patterns)})


def explain(line: str) -> KnownError | None:
    """The known error of a stack, node or scheduler that a line tells of."""
    return next((error for error in known_errors() if error.is_in(line)), None)
