"""Problems of an environment, and of the account that it is for. All checks report them in the same form: key, value, reason, fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticCustomError

Level = Literal["ok", "info", "warning", "error"]
KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """Result of a check, about one key of an environment or about the account.

    Attributes:
        key: path of the key in the environment: `("network", "cidr")`; empty if no key is affected.
        value: its current value.
        reason: what is wrong with it, or what it means for this environment.
        fix: what to write instead; empty if nothing is needed.
        level: `error` would fail or waste money; `warning` may be intended; `info` is worth knowing; `ok` is not a problem.
        rule: the name of the rule or of the live check that reports it.
        engine: name of the engine whose stack is affected; None for all.
        what: what was checked, for example `vCPU quota of on-demand Trn instances`; empty: the key.
        where: the file and line of the key in a report; empty in others, and if no key is affected.
    """

    key: KeyPath
    value: Any
    reason: str
    fix: str
    level: Level = "error"
    rule: str = "shape"
    engine: str | None = None
    what: str = ""
    where: str = ""

    @property
    def dotted(self) -> str:
        """The key in dotted form: `pcluster.queues[0].name`."""
        return dotted(self.key) or "(the whole file)"

    @property
    def text(self) -> str:
        """Key, value, reason and fix; a problem of all keys together has no key and no value."""
        what = f"{self.dotted} = {show(self.value)}: " if self.key else ""
        return f"{what}{self.reason}. Fix: {self.fix}."


@dataclass(frozen=True)
class Source:
    """Source of an environment: the file, the line of each key in it, and each number as it is written."""

    # not compared: environments with the same content are equal, even if they were read from different files
    file: str = field(default="(defaults)", compare=False)
    lines: dict[KeyPath, int] = field(default_factory=dict, compare=False)
    numbers: dict[KeyPath, str] = field(default_factory=dict, compare=False)

    def where(self, key: KeyPath) -> str:
        """`file:line` of the key, or of its nearest parent key that is in the file."""
        for end in range(len(key), 0, -1):
            if line := self.lines.get(key[:end]):
                return f"{self.file}:{line}"
        return self.file

    def describe(self, problem: Problem) -> str:
        """One problem in one paragraph: location, value, reason and fix."""
        return _printable(f"{self.where(problem.key)}: {problem.level}: {problem.text}")


def dotted(key: KeyPath) -> str:
    """A path in dotted form; a step `[]` is any item of a list.

    >>> dotted(("pcluster", "queues", 0, "name")), dotted(("eks", "node_groups", "[]", "efa"))
    ('pcluster.queues[0].name', 'eks.node_groups[].efa')
    """
    text = "".join(f"[{k}]" if isinstance(k, int) else k if k == "[]" else f".{k}" for k in key)
    return text.removeprefix(".")


def show(value: Any, limit: int = 80) -> str:
    """A value as it is printed in a message: short and on one line."""
    if isinstance(value, BaseModel):
        text = "(this section)"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, int) and value.bit_length() > 1024:
        text = hex(value)  # Python refuses to print that many decimal digits
    else:
        text = str(value) if isinstance(value, str | int | float | date) else repr(value)
    text = _printable(without_passwords(text))
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def without_passwords(text: str) -> str:
    """A text without what may be a password: in an address, before the @ and after the question mark.

    >>> without_passwords("--extra-index-url https://" + "me:pw" + "@h.org/simple?token=pw")
    '--extra-index-url https://****@h.org/simple?****'
    """
    text = re.sub(r"://[^/\s]*@", "://****@", text)
    return re.sub(r"(://[^\s?]*)\?\S*", r"\1?****", text)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def wrong(reason: str, fix: str) -> PydanticCustomError:
    """The error a validator raises, with the fix after the reason."""
    return PydanticCustomError("trn", "{reason}", {"reason": reason, "fix": fix})


def errors(problems: Iterable[Problem]) -> list[Problem]:
    return [p for p in problems if p.level == "error"]
