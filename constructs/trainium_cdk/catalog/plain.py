"""Data that both YAML and JSON can represent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any


def plain(data: Any) -> Any:
    """`data` as text, finite numbers, booleans, null, lists, and mappings with text keys; dates become text.

    An environment that is written out and read again is then the same.

    Raises:
        ValueError: it contains something else; the message says what.
    """
    if isinstance(data, Mapping):
        if invalid := next((k for k in data if not isinstance(k, str)), None):
            raise ValueError(f"the key {invalid!r} is not text: put it in quotes")
        return {k: plain(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [plain(v) for v in data]
    if isinstance(data, dt.date):
        return data.isoformat()
    if isinstance(data, float) and not isfinite(data):
        raise ValueError(f"{data} cannot be written in YAML and JSON: use a finite number")
    if data is None or isinstance(data, str | int | float | bool):
        return data
    raise ValueError(f"{type(data).__name__} is not text, a number, a list or a mapping")


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its noun, and with what depends on the number.

    >>> counted(1, "file"), counted(2000, "file"), counted(2, "address"), counted(0, "job runs", "jobs run")
    ('1 file', '2,000 files', '2 addresses', '0 jobs run')
    """
    return f"{number:,} {one if number == 1 else several or one + ('es' if one.endswith('s') else 's')}"


def join_words(items: Iterable[object], last: str = "and") -> str:
    """Items joined as in a sentence: `a, b and c`."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}" if texts else "none"
