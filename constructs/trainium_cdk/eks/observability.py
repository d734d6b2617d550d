"""The cluster's logs and metrics in CloudWatch: the values of the add-on, and its log groups. Pure."""

from __future__ import annotations

from typing import Any

ADDON = "amazon-cloudwatch-observability"
LOGS = ("application", "dataplane", "host")
"""Log groups of Fluent Bit: pods, Kubernetes' own programs, nodes."""
METRICS = ("performance",)
"""Log group of Container Insights, from which CloudWatch creates metrics."""


def log_groups(cluster: str, *, metrics: bool) -> dict[str, str]:
    """The names of the log groups that the add-on writes to, by their last part."""
    kinds = LOGS + (METRICS if metrics else ())
    return {kind: f"/aws/containerinsights/{cluster}/{kind}" for kind in kinds}


def configuration(*, metrics: bool) -> dict[str, Any]:
    """Configuration of the add-on: logs, and Container Insights if `metrics`. Not Application Signals, which observes web
    services and changes their pods, nor parts for NVIDIA."""
    on = {
        "containerLogs": True,
        "containerInsights": metrics,
        "neuronMonitor": metrics,
        "applicationSignals": False,
        "dcgmExporter": False,
    }
    return {section: {"enabled": enabled} for section, enabled in on.items()}
