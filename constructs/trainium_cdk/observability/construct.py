"""`TrnObservability`: what a cluster does and what it costs, as a dashboard and alarms of CloudWatch."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cw
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk._cdk.retention import RETENTION
from trainium_cdk.observability.alarms import Rule, rules
from trainium_cdk.observability.dashboard import rows
from trainium_cdk.observability.metrics import Metrics
from trainium_cdk.settings import Environment
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.settings.inventory.base import MetricsSource
from trainium_cdk.settings.observability import metrics_group
from trainium_cdk.storage import AnyStorage
from trainium_cdk.storage.given import mounts


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
        metrics, watched = Metrics(cluster_name), {}
        if alarm_topic:
            for rule in rules(metrics, source=node_metrics, static_nodes=static_nodes, wait=wait):
                watched[rule.name] = self._alarm(rule)
                watched[rule.name].add_alarm_action(actions.SnsAction(alarm_topic))
        self.alarms = watched
        widgets = rows(metrics, source=node_metrics, queues=queues, file_systems=file_systems)
        if watched:
            widgets.insert(0, [cw.AlarmStatusWidget(title="Alarms", alarms=list(watched.values()), width=24, height=2)])
        self.dashboard = cw.Dashboard(
            self,
            "Dashboard",
            # an account has one dashboard of a name, and not one in each region
            dashboard_name=f"Trainium-{cluster_name}-{Stack.of(self).region}",
            default_interval=Duration.hours(6),
            widgets=widgets,
        )

    @classmethod
    def from_settings(
        cls, scope: Construct, id: str, *, environment: Environment, engine: str, storage: AnyStorage
    ) -> TrnObservability | None:
        """What is seen of an environment's cluster of one engine; None where its settings say so, or nothing counts its jobs."""
        settings, found = environment.observability, inventory(environment, engine)
        if settings is None or not found.counts_jobs:
            return None
        prices: dict[str, float | None] = {}
        for nodes in found.known_nodes:  # of a queue with several types, the most expensive one counts
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
            # not kept: another deployment of the environment has a log group of this name. The metrics stay in CloudWatch
            removal_policy=RemovalPolicy.DESTROY,
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

    def _alarm(self, rule: Rule) -> cw.Alarm:
        return cw.Alarm(
            self,
            rule.name.title().replace("-", ""),
            alarm_description=rule.what,
            metric=rule.metric,
            threshold=rule.above,
            comparison_operator=cw.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=rule.periods,
            treat_missing_data=cw.TreatMissingData.NOT_BREACHING,  # nothing was sent yet, or there are no nodes
        )
