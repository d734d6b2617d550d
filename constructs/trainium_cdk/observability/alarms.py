"""Alarms of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cw

from trainium_cdk.observability.metrics import FIVE, Metrics
from trainium_cdk.settings.inventory.base import MetricsSource


class AlarmRule(NamedTuple):
    """A metric that is above a value for some periods of five minutes, one after the other."""

    name: str
    what: str
    metric: cw.Metric
    above: float = 0
    periods: int = 1


def rules(metrics: Metrics, *, source: MetricsSource | None, static_nodes: int, wait: Duration) -> Iterator[AlarmRule]:
    """Every rule for a cluster; the last two where its nodes themselves send metrics."""
    of = metrics.cluster
    failed = f"{of}: nodes have failed; `trn nodes` names them with their reasons"
    yield AlarmRule("failed-nodes", failed, metrics.sent("NodesFailed", period=FIVE), periods=3)
    waits = f"{of}: a job has waited for nodes for too long; `trn status` says why"
    yield AlarmRule("waiting-job", waits, metrics.sent("LongestWait", period=FIVE), wait.to_seconds(integral=False))
    idle = f"{of}: nodes cost money without work for an hour; `trn nodes` lists them"
    yield AlarmRule("idle-nodes", idle, metrics.sent("NodesIdle", "Minimum", period=FIVE), static_nodes, periods=12)
    if source == "nodes":
        disk = f"{of}: a disk or file system of a node is over nine tenths full; the metric DiskUsed by node says which"
        yield AlarmRule("full-disk", disk, metrics.sent("DiskUsed", period=FIVE), above=90)
        memory = f"{of}: a Neuron device has had memory errors that it could not correct; results may be wrong"
        yield AlarmRule("memory-errors", memory, metrics.sent("UncorrectedMemoryErrors", period=FIVE))
