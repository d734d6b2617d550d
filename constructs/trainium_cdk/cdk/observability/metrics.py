"""The metrics of one cluster, by name: what the dashboard shows and the alarms watch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cw

NAMESPACE = "Trainium"
INSIGHTS = "ContainerInsights"
MINUTE, FIVE = Duration.minutes(1), Duration.minutes(5)


def metric(
    namespace: str, name: str, statistic: str, *, label: str = "", period: Duration = MINUTE, **dimensions: str
) -> cw.Metric:
    """A metric of a namespace with its dimensions."""
    return cw.Metric(
        namespace=namespace,
        metric_name=name,
        statistic=statistic,
        period=period,
        label=label or None,
        dimensions_map=dimensions,
    )


@dataclass(frozen=True)
class Metrics:
    """The metrics of a cluster.

    Attributes:
        cluster: its name in them.
    """

    cluster: str

    def sent(
        self, name: str, statistic: str = "Maximum", *, label: str = "", period: Duration = MINUTE, **more: str
    ) -> cw.Metric:
        """Return a metric that nodes, or the function that starts nodes, send. `more` are further dimensions."""
        return metric(NAMESPACE, name, statistic, label=label, period=period, Cluster=self.cluster, **more)

    def spread(self, name: str) -> Iterator[cw.Metric]:
        """One metric of many devices: their mean and both ends."""
        for statistic, label in (("Average", "mean"), ("Minimum", "slowest device"), ("Maximum", "busiest device")):
            yield self.sent(name, statistic, label=label)

    def insight(self, name: str, statistic: str) -> cw.Metric:
        """Return a metric that Container Insights sends."""
        return metric(INSIGHTS, name, statistic, ClusterName=self.cluster)
