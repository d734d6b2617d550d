"""The value of a setting for a value of ParallelCluster's configuration; `NO` where the setting has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainium_cdk.checks.nodes import trains_or_is_arm

NO = object()
"""A setting has no value for it."""


def as_is(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else NO


def in_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else NO


def flag(value: Any) -> Any:
    return {"true": True, "false": False}.get(str(value).lower(), NO)


def inverted(value: Any) -> Any:
    return NO if (found := flag(value)) is NO else not found


def on_off(value: Any) -> Any:
    return NO if (found := flag(value)) is NO else "on" if found else "off"


def by_name(names: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda value: names.get(value, NO) if isinstance(value, str | int) else NO


def number(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


def gib(value: Any) -> Any:
    size = number(value)
    return size if size is not None and 40 <= size <= 16384 else NO


def not_zero(value: Any) -> Any:
    return NO if value in (0, "0") else as_is(value)


def ordinary_type(value: Any) -> Any:
    return value if isinstance(value, str) and not trains_or_is_arm(value) else NO
