"""The values that Helm charts and add-ons have. Helm ignores a value that a chart does not have, and a text "false" counts as true.

>>> from trainium_cdk.description.catalog.charts import check_values
>>> check_values("neuron", "1.10.0", {"npd": {"nodeRecovry": {"enabled": True}}})
Wrong(name='npd.nodeRecovry', reason='neuron 1.10.0 has no such value', fix='write nodeRecovery, or remove it', stops=True)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.description.catalog.slurm import Wrong
from trainium_cdk.errors import similar

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
}

_EXAMPLES = {
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false without quotes",
    "integer": "a whole number without quotes",
    "number": "a number without quotes",
    "string": "a text in quotes",
    "string of boolean": 'the text "true" or "false"',
    "string of integer": 'a whole number in quotes, for example "12"',
}


def recorded(chart: str) -> str | None:
    """The version of a chart or add-on whose values are known; None if none are."""
    found = _data().get(chart)
    return found["version"] if found else None


def check_values(chart: str, version: str, values: Mapping[str, Any]) -> Wrong | None:
    """The first value that a chart or add-on does not have, or that is of another type; None if it takes them all.

    Args:
        chart: its name in the catalogue.
        version: the one that is installed. The values of another one than `recorded` are not known, and None is returned.
        values: as in `helm install --values`. Without a default (null) in the chart, any type is accepted.
    """
    if recorded(chart) != version:
        return None
    return _check(values, _data()[chart]["keys"], "", f"{chart} {version}")


def _check(values: Mapping[str, Any], keys: Mapping[str, Any], above: str, chart: str) -> Wrong | None:
    for key, value in values.items():
        name = above + key
        if key not in keys:
            close = similar(key, list(keys))
            return Wrong(name, f"{chart} has no such value", f"write {close}, or remove it" if close else "remove it")
        below = keys[key] if isinstance(keys[key], Mapping) else None
        kind = "object" if below is not None else keys[key]
        if not _fits(value, kind):
            return Wrong(name, f"{chart} takes no value of this type", f"write {_EXAMPLES[kind]}")
        if below and (wrong := _check(value, below, f"{name}.", chart)):
            return wrong
    return None


def _fits(value: Any, kind: str) -> bool:
    base, _, form = kind.partition(" of ")
    if base == "any":
        return True
    if not isinstance(value, _TYPES[base]) or (isinstance(value, bool) and base != "boolean"):
        return False
    return form == "" or (value in ("true", "false") if form == "boolean" else str(value).isdecimal())


@cache
def _data() -> dict[str, Any]:
    charts: dict[str, Any] = read("charts")["charts"]
    return charts
