"""`TrnObservability`: what a cluster does and what it costs, as a dashboard and alarms of CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk.cdk.eks.groups import INodeGroup
from trainium_cdk.cdk.eks.view import AnyCluster, view_of
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.stack_wide import place_of
from trainium_cdk.cdk.observability.dashboard import Rows, rows
from trainium_cdk.cdk.observability.metrics import Metric, Metrics
from trainium_cdk.cdk.slurm import OwnSlurmCluster
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.cdk.storage.given import mounts
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.description.settings.inventory.base import MetricsSource
from trainium_cdk.description.settings.observability import metrics_group

_ALARMS_HEIGHT = 2


class TrnObservability(Checked):
    """A dashboard and alarms for one cluster. The metrics come from the cluster: on Slurm the node scripts send them (`TrnBootstrap` with
    `metrics_log_group`), on EKS `TrnScaler` (with `metrics`) and, for NeuronCores, Container Insights (`TrnAddons` with `observability`).

    Example:
        watched = TrnObservability(self, "Observability", cluster=cluster)
        watched.grant_write(cluster.node_policy)

    Args:
        cluster: A `TrnPcluster`, a `TrnPcsCluster`, a `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks`.
        node_groups: On EKS: the Trainium node groups to show. Default: none, for Slurm.
        container_insights: On EKS: whether Container Insights sends metrics of NeuronCores, memory and EFA. Default: False.
        storage: The file systems to show. Default: the Slurm cluster's, or the node groups'.
        static_nodes: Number of nodes that run without work on purpose. Default: on Slurm, those that the queues always have; on EKS, none.
        alarm_topic: Where the alarms are sent. Default: no alarms, as they would reach no one.
        longest_wait: A job that waits longer raises an alarm. Default: 6 hours.
        log_retention: How long the log lines of Slurm's nodes are kept. Default: a year.
        removal_policy: For that log group on `cdk destroy`. Default: DESTROY.
        catalog: The catalogue with the prices of node groups. Default: this release's.

    Raises:
        ValueError: on EKS there is no node group, or `longest_wait` is longer than a week, which CloudWatch's alarms cannot look back.
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
        cluster: OwnSlurmCluster | AnyCluster,
        node_groups: Sequence[INodeGroup] = (),
        container_insights: bool = False,
        storage: AnyStorage | None = None,
        static_nodes: int | None = None,
        alarm_topic: sns.ITopic | None = None,
        longest_wait: Duration | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_YEAR,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(scope, id)
        if isinstance(cluster, OwnSlurmCluster):
            seen = _slurm(cluster)
        elif node_groups:
            seen = _eks(cluster, node_groups, container_insights, catalog or Catalog.load(), place_of(self).region)
        else:
            raise ValueError(
                f"{self.node.path}: node_groups is empty: there is nothing to watch. Fix: give the node groups"
            )
        cluster_name, queues, node_metrics, own_storage, own_static = seen
        storage = storage or own_storage
        static_nodes = own_static if static_nodes is None else static_nodes
        self.log_group = None
        if node_metrics == "nodes":
            name = metrics_group(cluster_name)
            self.log_group = logs.LogGroup(
                self, "Metrics", log_group_name=name, retention=log_retention, removal_policy=removal_policy
            )
        file_systems = [(mount.kind, mount.id) for mount in mounts(self, storage)]
        six_hours = Duration.hours(6)
        wait = longest_wait or six_hours
        if wait.to_days(integral=False) > 7:
            raise ValueError(
                f"{self.node.path}: longest_wait = {wait.to_hours(integral=False):.0f} hours is longer than a week. Fix: give at most "
                "Duration.days(7)"
            )
        metrics, watched = Metrics(cluster_name), {}
        if alarm_topic:
            for rule in rules(metrics, source=node_metrics, static_nodes=static_nodes, wait=wait):
                watched[rule.name] = self._alarm(rule)
                watched[rule.name].add_alarm_action(actions.SnsAction(alarm_topic))
        self.alarms = watched
        shown = rows(metrics, source=node_metrics, queues=queues, file_systems=file_systems)
        widgets: list[Sequence[cw.IWidget]] = [[Rows(shown, top=_ALARMS_HEIGHT if watched else 0)]]
        if watched:
            states = cw.AlarmStatusWidget(
                title="Alarms", alarms=list(watched.values()), width=24, height=_ALARMS_HEIGHT
            )
            widgets.insert(0, [states])
        self.dashboard = cw.Dashboard(
            self,
            "Dashboard",
            # an account has one dashboard of a name, and not one in each region
            dashboard_name=f"Trainium-{cluster_name}-{place_of(self).region}",
            default_interval=six_hours,
            widgets=widgets,
        )

    def grant_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a Slurm node send its metrics.

        Raises:
            ValueError: the cluster has no Slurm: its nodes send nothing themselves.
        """
        if self.log_group is None:
            raise ValueError(
                f"{self.node.path}: only nodes of a Slurm cluster send metrics themselves. Fix: grant nothing"
            )
        write = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")
        return self.log_group.grant(grantee, *write)

    def _alarm(self, rule: AlarmRule) -> cw.Alarm:
        return cw.Alarm(
            self,
            rule.name.title().replace("-", ""),
            alarm_description=rule.what,
            metric=rule.metric.watched(),
            threshold=rule.above,
            comparison_operator=cw.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=rule.periods,
            treat_missing_data=cw.TreatMissingData.NOT_BREACHING,  # nothing was sent yet, or there are no nodes
        )


class _Seen(NamedTuple):
    """Values of an observed cluster. `name` is its name in its metrics. `queues` has the price of a node of each queue. `node_metrics` is the
    source of device metrics. `static_nodes` run without work on purpose."""

    name: str
    queues: Mapping[str, float | None]
    node_metrics: MetricsSource | None
    storage: AnyStorage | None
    static_nodes: int


def _slurm(cluster: OwnSlurmCluster) -> _Seen:
    environment = cluster.environment
    found = inventory(environment, cluster.engine)
    prices: dict[str, float | None] = {}
    for nodes in found.known_nodes:  # of a queue with several types, the most expensive one counts
        block = nodes.queue.capacity_type == "capacity-block"
        price = None if block else environment.catalog.price(nodes.kind.name, environment.region)
        prices[nodes.queue.name] = max(filter(None, (prices.get(nodes.queue.name), price)), default=None)
    static = sum(nodes.resource.idle_nodes for nodes in found.known_nodes)
    return _Seen(found.cluster, prices, found.node_metrics, cluster.storage, static)


def _eks(
    cluster: AnyCluster, groups: Sequence[INodeGroup], container_insights: bool, catalog: Catalog, region: str
) -> _Seen:
    fleets = [group.fleet for group in groups]
    blocks = {fleet.queue for fleet in fleets if fleet.capacity_type == "capacity-block"}
    prices = {f.queue: None if f.queue in blocks else catalog.price(f.instance_type, region) for f in fleets}
    storage = next((group.storage for group in groups if group.storage), None)
    return _Seen(view_of(cluster).name, prices, "container-insights" if container_insights else None, storage, 0)


class AlarmRule(NamedTuple):
    """A metric that is above a value for some periods of five minutes, one after the other."""

    name: str
    what: str
    metric: Metric
    above: float = 0
    periods: int = 1


def rules(metrics: Metrics, *, source: MetricsSource | None, static_nodes: int, wait: Duration) -> Iterator[AlarmRule]:
    """Every rule for a cluster; the last two where its nodes themselves send metrics."""
    of = metrics.cluster
    failed = f"{of}: nodes have failed; `trn nodes` names them with their reasons"
    yield AlarmRule("failed-nodes", failed, metrics.sent("NodesFailed"), periods=3)
    waits = f"{of}: a job has waited for nodes for too long; `trn status` says why"
    yield AlarmRule("waiting-job", waits, metrics.sent("LongestWait"), wait.to_seconds(integral=False))
    idle = f"{of}: nodes cost money without work for an hour; `trn nodes` lists them"
    yield AlarmRule("idle-nodes", idle, metrics.sent("NodesIdle", "Minimum"), static_nodes, periods=12)
    if source == "nodes":
        disk = f"{of}: a disk or file system of a node is over nine tenths full; the metric DiskUsed by node says which"
        yield AlarmRule("full-disk", disk, metrics.sent("DiskUsed"), above=90)
        memory = f"{of}: a Neuron device has had memory errors that it could not correct; results may be wrong"
        yield AlarmRule("memory-errors", memory, metrics.sent("UncorrectedMemoryErrors"))
