"""The Neuron Helm chart, which cannot be downloaded: which values it refuses, and what it creates that others rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.kubernetes import claims
from sandbox.kubernetes.api import Object

_NAME = "neuron-helm-chart"
_DEFAULTS = {"devicePlugin": True, "npd": True, "scheduler": False, "draDriver": False}
_EXCLUDED = (("devicePlugin", "device plugin"), ("scheduler", "scheduler"))


def _is(chart: str) -> bool:
    return chart.rpartition("/")[2] == _NAME


def _enabled(values: Mapping[str, Any]) -> set[str]:
    return {part for part, default in _DEFAULTS.items() if values.get(part, {}).get("enabled", default)}


def refused(chart: str, values: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a chart cannot be installed with these values; empty if it can, and for other charts.

    Args:
        others: the releases that are there, by namespace/name.
    """
    if not _is(chart):
        return ""
    on = _enabled(values)
    for part, words in _EXCLUDED:
        if {"draDriver", part} <= on:
            return (
                "execution error at (neuron-helm-chart/templates/dra-driver-daemonset.yaml): DRA driver and "
                f"{words} cannot both be enabled. Please set either draDriver.enabled=false or {part}.enabled=false"
            )
    if "scheduler" in on and "devicePlugin" not in on:
        return (
            "execution error at (neuron-helm-chart/templates/_helpers.tpl): Scheduler requires device plugin to be enabled. "
            "Please set devicePlugin.enabled=true or disable the scheduler"
        )
    for name, other in others.items():
        if _is(other["chart"]) and (both := on & _enabled(other["values"])):
            return f"Unable to continue with install: {min(both)} exists and cannot be imported into the current release: it is of {name}"
    return ""


def objects(chart: str, values: Mapping[str, Any]) -> list[Object]:
    """What a release of the chart creates, as far as others rely on it."""
    return claims.objects() if _is(chart) and "draDriver" in _enabled(values) else []
