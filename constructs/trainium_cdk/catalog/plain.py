"""Data as YAML and JSON both hold it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any


def plain(data: Any) -> Any:
    """`data` as text, finite numbers, booleans, null, lists, and mappings with text keys; dates become text.

    So an environment can be written out and read again, and is the same.

    Raises:
        ValueError: something else is in it; the message says what.
    """
    if isinstance(data, Mapping):
        if odd := next((k for k in data if not isinstance(k, str)), None):
            raise ValueError(f"the key {odd!r} is not text: put it in quotes")
        return {k: plain(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [plain(v) for v in data]
    if isinstance(data, dt.date):
        return data.isoformat()
    if isinstance(data, float) and not isfinite(data):
        raise ValueError(f"{data} is not a number that can be written")
    if data is None or isinstance(data, str | int | float | bool):
        return data
    raise ValueError(f"{type(data).__name__} is not text, a number, a list or a mapping")


def listed(words: Iterable[object], last: str = "and") -> str:
    """Words as people list them: `a, b and c`."""
    found = [str(w) for w in words]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else "none"
