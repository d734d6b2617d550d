"""What is wrong with an environment, said the same way whoever found it: key, value, reason, fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticCustomError

Level = Literal["error", "warning", "info"]
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """One finding about one key of an environment.

    Attributes:
        key: where, as a path into the environment: `("network", "cidr")`.
        value: what is there now.
        reason: what is wrong with it.
        fix: what to write instead.
        rule: the name of the rule that found it.
        engine: name of the engine whose stack it concerns; None for all.
    """

    key: KeyPath
    value: Any
    reason: str
    fix: str
    level: Level = "error"
    rule: str = "shape"
    engine: str | None = None

    @property
    def dotted(self) -> str:
        """The key as people write it: `pcluster.queues[0].name`."""
        text = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in self.key)
        return text.removeprefix(".") or "(the whole file)"


@dataclass(frozen=True)
class Source:
    """Where an environment was read from: the file, and the line of each key in it."""

    # not compared: two environments that say the same are equal, whichever files they were read from
    file: str = field(default="(defaults)", compare=False)
    lines: dict[KeyPath, int] = field(default_factory=dict, compare=False)

    def where(self, key: KeyPath) -> str:
        """`file:line` of the key, or of the nearest key above it that the file holds."""
        for end in range(len(key), 0, -1):
            if line := self.lines.get(key[:end]):
                return f"{self.file}:{line}"
        return self.file

    def describe(self, problem: Problem) -> str:
        """One problem in one paragraph: where, which value, why, and what to do."""
        return _printable(
            f"{self.where(problem.key)}: {problem.level}: {problem.dotted} = {show(problem.value)}: "
            f"{problem.reason}. Fix: {problem.fix}."
        )


def show(value: Any, limit: int = 80) -> str:
    """A value as it is printed in a message: short, one line, never a secret-sized blob."""
    if isinstance(value, BaseModel):
        text = "(this section)"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int) and value.bit_length() > 1024:
        text = hex(value)  # Python refuses to write as many decimal digits
    else:
        text = str(value) if isinstance(value, str | int | float | date) else repr(value)
    text = _printable(text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def wrong(reason: str, fix: str) -> PydanticCustomError:
    """The error a validator raises, with the fix beside the reason."""
    return PydanticCustomError("trn", "{reason}", {"reason": reason, "fix": fix})


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [p for p in problems if p.level == "error"]
