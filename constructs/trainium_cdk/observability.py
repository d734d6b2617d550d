"""`TrnObservability`: what a cluster does and what it costs, as a dashboard and alarms of CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk._cdk.removal import removal_policy as policy_of
from trainium_cdk._cdk.retention import RETENTION
from trainium_cdk.settings import Environment
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.settings.inventory.base import MetricsSource
from trainium_cdk.settings.observability import metrics_group
from trainium_cdk.storage import AnyStorage
from trainium_cdk.storage.given import mounts

NAMESPACE = "Trainium"
_INSIGHTS = "ContainerInsights"
_MINUTE, _FIVE = Duration.minutes(1), Duration.minutes(5)
_LIVE = (
    "Jobs and nodes are counted each minute. A gap: nothing was counted, see the function or the service that counts."
)


class TrnObservability(Construct):
    """A dashboard and alarms for one cluster. The metrics come from the cluster: on Slurm the node scripts send them (`TrnBootstrap` with
    `metrics_log_group`), on EKS `TrnScaler` (with `metrics`) and, for NeuronCores, Container Insights (`TrnAddons` with `observability`).

    Example:
        watched = TrnObservability(self, "Observability", cluster_name="slurm", queues={"trn": 21.5}, storage=efs)
        watched.grant_write(cluster.node_policy)

    Args:
        cluster_name: The cluster's name in its metrics: text, not a token.
        queues: Its queues (on EKS: node groups) with the price of a node, USD an hour; None for one that is not known or not paid by the
            hour.
        node_metrics: Where metrics of NeuronCores, memory and EFA come from: `nodes` (Slurm), `container-insights` (EKS), or None. Default: nodes.
        storage: The file systems to show. Default: none.
        static_nodes: Number of nodes that run without work on purpose. Default: 0.
        alarm_topic: Where the alarms are sent. Default: no alarms, as they would reach no one.
        longest_wait: A job that waits longer raises an alarm. Default: 6 hours.
        log_retention: How long the metrics' log lines are kept (`nodes`). Default: a year.
        removal_policy: For that log group on `cdk destroy`. Default: DESTROY.

    Raises:
        ValueError: there is no queue, or `longest_wait` is longer than a week, which CloudWatch's alarms cannot look back.
    """

    dashboard: cw.Dashboard
    alarms: Mapping[str, cw.Alarm]
    """With `alarm_topic`, by name: failed-nodes, waiting-job, idle-nodes, and with metrics of Slurm's nodes full-disk, memory-errors."""
    log_group: logs.LogGroup | None
    """Where Slurm's nodes send their metrics; None for another source."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster_name: str,
        queues: Mapping[str, float | None],
        node_metrics: MetricsSource | None = "nodes",
        storage: AnyStorage | None = None,
        static_nodes: int = 0,
        alarm_topic: sns.ITopic | None = None,
        longest_wait: Duration | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        if not queues:
            raise ValueError(
                f"{self.node.path}: queues is empty: there is nothing to watch. Fix: queues={{'trn': 21.5}}"
            )
        self._name, self._source, self._queues = cluster_name, node_metrics, queues
        self.log_group = None
        if node_metrics == "nodes":
            name = metrics_group(cluster_name)
            self.log_group = logs.LogGroup(
                self, "Metrics", log_group_name=name, retention=log_retention, removal_policy=removal_policy
            )
        file_systems = [(mount.kind, mount.id) for mount in mounts(self, storage)]
        wait = longest_wait or Duration.hours(6)
        if wait.to_days(integral=False) > 7:
            raise ValueError(
                f"{self.node.path}: longest_wait = {wait.to_hours(integral=False):.0f} hours is longer than a week. Fix: give at most "
                "Duration.days(7)"
            )
        self.alarms = dict(self._alarms(static_nodes, wait)) if alarm_topic else {}
        for alarm in self.alarms.values():
            alarm.add_alarm_action(actions.SnsAction(alarm_topic))  # type: ignore[arg-type]  # there is one
        rows = [self._nodes(), *self._devices(), *_storage(file_systems)]
        if self.alarms:
            rows.insert(
                0, [cw.AlarmStatusWidget(title="Alarms", alarms=list(self.alarms.values()), width=24, height=2)]
            )
        self.dashboard = cw.Dashboard(
            self, "Dashboard", dashboard_name=f"Trainium-{cluster_name}", default_interval=Duration.hours(6),
            widgets=rows,
        )  # fmt: skip

    @classmethod
    def from_settings(
        cls, scope: Construct, id: str, *, environment: Environment, engine: str, storage: AnyStorage
    ) -> TrnObservability | None:
        """What is seen of an environment's cluster of one engine; None where its settings say so, or nothing counts its jobs."""
        settings, found = environment.observability, inventory(environment, engine)
        if settings is None or not found.counts_jobs:
            return None
        prices: dict[str, float | None] = {}
        for (
            nodes
        ) in found.known_nodes:  # a queue may have several types: idle nodes cost at most that of the most expensive
            block = nodes.queue.capacity_type == "capacity-block"
            price = None if block else environment.catalog.price(nodes.kind.name, environment.region)
            prices[nodes.queue.name] = max(filter(None, (prices.get(nodes.queue.name), price)), default=None)
        topic = settings.alarm_topic
        return cls(
            scope,
            id,
            cluster_name=found.cluster,
            queues=prices,
            node_metrics=found.node_metrics,
            storage=storage,
            static_nodes=sum(nodes.resource.idle_nodes for nodes in found.known_nodes),
            alarm_topic=sns.Topic.from_topic_arn(scope, f"{id}Topic", topic) if topic else None,
            log_retention=RETENTION[settings.log_days],
            removal_policy=policy_of(environment.on_destroy),
        )

    def grant_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a Slurm node send its metrics.

        Raises:
            ValueError: `node_metrics` is not `nodes`.
        """
        if self.log_group is None:
            raise ValueError(f"{self.node.path}: nodes send nothing here. Fix: node_metrics='nodes'")
        write = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")
        return self.log_group.grant(grantee, *write)

    def _metric(
        self, name: str, statistic: str = "Maximum", *, label: str = "", period: Duration = _MINUTE, **more: str
    ) -> cw.Metric:
        return cw.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            statistic=statistic,
            period=period,
            label=label or None,
            dimensions_map={"Cluster": self._name, **more},
        )

    def _alarms(self, static_nodes: int, wait: Duration) -> Iterator[tuple[str, cw.Alarm]]:
        failed = f"{self._name}: nodes have failed; `trn nodes` names them with their reasons"
        yield "failed-nodes", self._alarm("FailedNodes", failed, self._metric("NodesFailed", period=_FIVE), 0, 3)
        waits = f"{self._name}: a job has waited for nodes for too long; `trn status` says why"
        seconds = wait.to_seconds(integral=False)
        yield "waiting-job", self._alarm("WaitingJob", waits, self._metric("LongestWait", period=_FIVE), seconds, 1)
        idle = f"{self._name}: nodes cost money without work for an hour; `trn nodes` lists them"
        yield (
            "idle-nodes",
            self._alarm("IdleNodes", idle, self._metric("NodesIdle", "Minimum", period=_FIVE), static_nodes, 12),
        )
        if self._source == "nodes":
            disk = f"{self._name}: a disk or file system of a node is over nine tenths full; the metric DiskUsed by node says which"
            yield "full-disk", self._alarm("FullDisk", disk, self._metric("DiskUsed", period=_FIVE), 90, 1)
            memory = (
                f"{self._name}: a Neuron device has had memory errors that it could not correct; results may be wrong"
            )
            errors = self._metric("UncorrectedMemoryErrors", period=_FIVE)
            yield "memory-errors", self._alarm("MemoryErrors", memory, errors, 0, 1)

    def _alarm(self, id: str, what: str, metric: cw.IMetric, above: float, periods: int) -> cw.Alarm:
        return cw.Alarm(
            self,
            id,
            alarm_description=what,
            metric=metric,
            threshold=above,
            comparison_operator=cw.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=periods,
            treat_missing_data=cw.TreatMissingData.NOT_BREACHING,  # nothing was sent yet, or there are no nodes
        )

    def _nodes(self) -> list[cw.IWidget]:
        states = [
            self._metric(f"Nodes{state}", label=state.lower()) for state in ("Busy", "Starting", "Idle", "Failed")
        ]
        known = {name: price for name, price in self._queues.items() if price}
        idle = {f"q{i}": self._metric("NodesIdle", label=name, Queue=name) for i, name in enumerate(known)}
        terms = [f"{metric}*{price}" for metric, price in zip(idle, known.values(), strict=True)]
        money = (
            cw.MathExpression(expression=" + ".join(terms), using_metrics=idle, label="USD an hour", period=_MINUTE)
            if terms
            else None
        )
        lacking = [name for name in self._queues if name not in known]
        jobs = [self._metric("JobsRunning", label="running"), self._metric("JobsWaiting", label="waiting for nodes")]
        wait = self._metric("LongestWait", label="longest wait")
        paid = (
            _graph("Money of idle nodes", [money], unit="USD an hour, at most")
            if money
            else _text("No queue of this cluster is paid by the hour at a known price.")
        )
        note = f" No hourly price is known of: {', '.join(lacking)}." if lacking and known else ""
        return [
            _graph("Nodes", states, stacked=True),
            _graph("Jobs", jobs, right=[wait], right_unit="seconds"),
            paid,
            _text(f"## {self._name}\n{_LIVE}{note}"),
        ]

    def _devices(self) -> Iterator[Sequence[cw.IWidget]]:
        if self._source == "nodes":
            yield [
                _graph("NeuronCores", [*self._spread("NeuronCoreUtilization")], unit="percent"),
                _graph(
                    "Memory",
                    [self._metric("NeuronMemoryUsed", label="Neuron"), self._metric("HostMemoryUsed", label="host")],
                    unit="percent",
                ),
                _graph(
                    "EFA",
                    [
                        self._metric("EfaReceived", "Sum", label="received"),
                        self._metric("EfaSent", "Sum", label="sent"),
                    ],
                    unit="bytes a second",
                ),
                _graph(
                    "Errors",
                    [self._metric("ExecutionErrors", "Sum"), self._metric("UncorrectedMemoryErrors", "Sum")],
                    right=[self._metric("DiskUsed", label="fullest disk, percent")],
                ),
            ]
        elif self._source:
            yield [
                _graph(
                    "NeuronCores",
                    [self._insight("node_neuroncore_utilization", s) for s in ("Average", "Maximum")],
                    unit="percent",
                ),
                _graph(
                    "Memory",
                    [self._insight("node_neurondevice_runtime_memory_used_bytes", "Sum")],
                    right=[self._insight("node_memory_utilization", "Maximum")],
                    unit="bytes",
                    right_unit="percent of the host's",
                ),
                _graph(
                    "EFA",
                    [self._insight(f"node_efa_{way}_bytes", "Sum") for way in ("rx", "tx", "rdma_read", "rdma_write")],
                    unit="bytes a second",
                ),
                _graph(
                    "Errors",
                    [
                        self._insight(f"node_{what}_total", "Sum")
                        for what in ("neuron_execution_errors", "neurondevice_hw_ecc_events")
                    ],
                    right=[self._insight("node_filesystem_utilization", "Maximum")],
                ),
            ]
        else:
            yield [
                _text(
                    "Metrics of NeuronCores, memory and EFA: set `eks.observability` (Container Insights, charged by observation).",
                    width=24,
                )
            ]

    def _spread(self, name: str) -> Iterator[cw.Metric]:
        for statistic, label in (("Average", "mean"), ("Minimum", "slowest device"), ("Maximum", "busiest device")):
            yield self._metric(name, statistic, label=label)

    def _insight(self, name: str, statistic: str) -> cw.Metric:
        return cw.Metric(
            namespace=_INSIGHTS,
            metric_name=name,
            statistic=statistic,
            period=_MINUTE,
            dimensions_map={"ClusterName": self._name},
        )


def _graph(
    title: str,
    left: Sequence[cw.IMetric],
    *,
    right: Sequence[cw.IMetric] = (),
    unit: str = "",
    right_unit: str = "",
    stacked: bool = False,
) -> cw.GraphWidget:
    return cw.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        left_y_axis=cw.YAxisProps(min=0, label=unit or None, show_units=False),
        right_y_axis=cw.YAxisProps(min=0, label=right_unit or None, show_units=False),
        stacked=stacked,
        width=6,
        height=6,
    )


def _text(markdown: str, width: int = 6) -> cw.TextWidget:
    return cw.TextWidget(markdown=markdown, width=width, height=6 if width == 6 else 2)


_FILE_SYSTEMS = {
    "fsx": ("AWS/FSx", ("DataReadBytes", "DataWriteBytes"), ("FreeDataStorageCapacity",)),
    "efs": ("AWS/EFS", ("DataReadIOBytes", "DataWriteIOBytes"), ("PercentIOLimit",)),
}
"""Namespace, traffic (bytes a period) and what runs out: FSx's free bytes, EFS's share of its limit."""


def _storage(file_systems: Sequence[tuple[str, str]]) -> Iterator[Sequence[cw.IWidget]]:
    for kind, id in file_systems:
        namespace, traffic, limits = _FILE_SYSTEMS[kind]
        metrics = {
            name: cw.Metric(
                namespace=namespace,
                metric_name=name,
                statistic=statistic,
                period=_MINUTE,
                dimensions_map={"FileSystemId": id},
            )
            for names, statistic in ((traffic, "Sum"), (limits, "Sum" if kind == "fsx" else "Maximum"))
            for name in names
        }
        title = {"fsx": "FSx for Lustre", "efs": "EFS"}[kind]
        yield [
            _graph(f"{title}: traffic", [metrics[name] for name in traffic], unit="bytes a minute"),
            _graph(
                f"{title}: {'free' if kind == 'fsx' else 'of its limit'}",
                [metrics[name] for name in limits],
                unit="bytes" if kind == "fsx" else "percent",
            ),
        ]
