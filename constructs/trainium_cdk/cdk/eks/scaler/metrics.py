"""Metrics of a cluster for CloudWatch: lines of its embedded metric format in the function's log. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from .model import Group, GroupNode, NodeRequest

NAMESPACE = "Trainium"
STATES = ("Busy", "Idle", "Starting", "Failed")


def lines(cluster: str, groups: Iterable[Group], requests: Iterable[NodeRequest], now: float) -> Iterator[str]:
    """One line for the cluster, and one for each node group. A request that has its nodes is a job that runs."""
    groups, requests = tuple(groups), tuple(requests)
    waits = [int(now - r.created) for r in requests if not r.provisioned]
    jobs = {"JobsRunning": len(requests) - len(waits), "JobsWaiting": len(waits), "LongestWait": max(waits, default=0)}
    counts = {g.name: {f"Nodes{s}": sum(_state(n) == s for n in g.nodes) for s in STATES} for g in groups}
    total = {f"Nodes{s}": sum(of[f"Nodes{s}"] for of in counts.values()) for s in STATES}
    yield _line({**jobs, **total}, now, Cluster=cluster)
    for name, of in counts.items():
        yield _line(of, now, Cluster=cluster, Queue=name)


def _state(node: GroupNode) -> str:
    if node.state == "usable":
        return "Busy" if node.busy else "Idle"
    return "Starting" if node.state == "starting" else "Failed"


def _line(values: dict[str, int], now: float, **dimensions: str) -> str:
    metrics = [{"Name": name, "Unit": "Seconds" if name == "LongestWait" else "Count"} for name in values]
    one = {"Namespace": NAMESPACE, "Dimensions": [list(dimensions)], "Metrics": metrics}
    return json.dumps({"_aws": {"Timestamp": int(now * 1000), "CloudWatchMetrics": [one]}, **dimensions, **values})
