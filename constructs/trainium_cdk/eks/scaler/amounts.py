"""Amounts of the resources for which the containers of a pod ask. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from .model import Resources

Object = dict[str, Any]

_UNITS = (
    {"": 1}
    | {unit: 1000**power for power, unit in enumerate("kMGTPE", 1)}
    | {f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)}
)
_DIGITS = 19
"""Most digits of a number of devices: Kubernetes accepts 1e999999999, and counts in 64 bits (apimachinery, pkg/api/resource/quantity.go)."""


def requested(spec: Object, names: Sequence[str]) -> Resources:
    """The request of a pod for each resource: all containers together, or the largest init container."""

    def of(container: Object, name: str) -> int:
        resources = container.get("resources", {})
        return whole({**resources.get("limits", {}), **resources.get("requests", {})}.get(name, "0"))

    containers, first = spec["containers"], spec.get("initContainers", [])
    return tuple(max(sum(of(c, n) for c in containers), *(of(c, n) for c in first), 0) for n in names)


def whole(quantity: str) -> int:
    """A number of devices. The API server keeps the form in which it was written: 16, 16e0, 1k, 1Ki."""
    number = quantity.rstrip("KMGTPEki")
    if (value := Decimal(number)).adjusted() >= _DIGITS:
        raise ValueError(f"{quantity[:40]} devices are more than can be counted")
    return int(value * _UNITS[quantity[len(number) :]])
