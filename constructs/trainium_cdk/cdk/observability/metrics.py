"""The metrics of one cluster, by name: what the dashboard shows and the alarms watch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cw

NAMESPACE = "Trainium"
INSIGHTS = "ContainerInsights"
MINUTE = 60


@dataclass(frozen=True)
class Metric:
    """A metric of CloudWatch, with its name on a graph, if it has another one there."""

    namespace: str
    name: str
    statistic: str
    dimensions: Mapping[str, str]
    label: str = ""

    def line(self, *, right: bool = False, **options: object) -> list[Any]:
        """A line of a graph, with a point each minute (CloudWatch user guide, "Dashboard body structure and syntax").

        Args:
            right: on the right axis. Default: on the left one.
            options: others of the line.
        """
        pairs = [each for pair in self.dimensions.items() for each in pair]
        label = {"label": self.label} if self.label else {}
        statistic = {"stat": self.statistic} if self.statistic != "Average" else {}
        axis = {"yAxis": "right"} if right else {}
        return [self.namespace, self.name, *pairs, {**label, **options, "period": MINUTE, **statistic, **axis}]

    def watched(self) -> cw.Metric:
        """The metric for an alarm, in periods of five minutes."""
        return cw.Metric(
            namespace=self.namespace,
            metric_name=self.name,
            statistic=self.statistic,
            period=_five_minutes(),
            dimensions_map=self.dimensions,
        )


@cache
def _five_minutes() -> Duration:
    return Duration.minutes(5)


@dataclass(frozen=True)
class Metrics:
    """The metrics of a cluster.

    Attributes:
        cluster: its name in them.
    """

    cluster: str

    def sent(self, name: str, statistic: str = "Maximum", *, label: str = "", **more: str) -> Metric:
        """Return a metric that nodes, or the function that starts nodes, send. `more` are further dimensions."""
        return Metric(NAMESPACE, name, statistic, {"Cluster": self.cluster, **more}, label)

    def spread(self, name: str) -> Iterator[Metric]:
        """One metric of many devices: their mean and both ends."""
        for statistic, label in (("Average", "mean"), ("Minimum", "slowest device"), ("Maximum", "busiest device")):
            yield self.sent(name, statistic, label=label)

    def insight(self, name: str, statistic: str) -> Metric:
        """Return a metric that Container Insights sends."""
        return Metric(INSIGHTS, name, statistic, {"ClusterName": self.cluster})
