"""`TrnScaler`: starts and stops Trainium nodes for gangs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import Duration, IgnoreMode, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct

from trainium_cdk._cdk.functions import function_role, log_group
from trainium_cdk._cdk.groups import ClosedGroup, https_out
from trainium_cdk._cdk.permissions import allow
from trainium_cdk.catalog import Catalog
from trainium_cdk.eks.access import SCALER
from trainium_cdk.eks.groups import NodeGroup, refuse_duplicates
from trainium_cdk.eks.view import AnyCluster, ClusterView, refuse_config_map, view_of
from trainium_cdk.network import TrnNetwork
from trainium_cdk.outputs import GROUP_LABEL
from trainium_cdk.settings import Environment

if TYPE_CHECKING:
    from trainium_cdk.eks.cluster import TrnEksCluster
    from trainium_cdk.eks.plugins import TrnPlugins

_HERE = Path(__file__).parent
_MEMORY_MIB = 512
_EVERY = Duration.minutes(1)
_VARIABLES = 4096 - len("SETTINGS")
"""Characters of all variables of a function and their names (AWS Lambda quotas, 2026-11)."""
_GROUPS_OF_A_POLICY = 10
"""With the longest names 440 characters each; a managed policy may have 6,144, and a role ten policies (IAM quotas, 2026-11)."""
_TOKEN = re.compile(r"\$\{Token\[[^]]*\]\}")
_GENERATED = 40
"""Characters of a name that CloudFormation generates: part of the logical id, and 12 random ones."""


class TrnScaler(Construct):
    """A function that sets the sizes of the node groups each minute to the needs of Volcano's gangs (see `scaler.decide`).

    As a function it needs no image and no node, its log outlives the cluster, and one IAM role has its permissions: to change the
    size of these groups, and in Kubernetes to list pods and pod groups, cordon nodes and write annotations. It costs well below
    one dollar a month.

    Cluster Autoscaler and Karpenter do not fit gangs: they react to pods marked `Unschedulable`, one by one, and Volcano marks the
    members of a waiting gang that would fit as `Schedulable`. Kueue's atomic provisioning does not support Volcano jobs.

    Example:
        plugins = TrnPlugins(self, "Plugins", cluster=cluster, node_groups=[group], storage=storage)
        TrnScaler(self, "Scaler", cluster=cluster, node_groups=[group], plugins=plugins)

    Args:
        cluster: A `TrnEksCluster`, or any cluster of `aws_eks_v2` or `aws_eks` whose authentication mode includes API.
        node_groups: The groups to scale: `TrnNodeGroup`s, or what `TrnNodeGroup.from_nodegroup_attributes` returns.
        plugins: Required in the cluster before the first run: Volcano, and the scaler's Kubernetes role.
        vpc_subnets: Subnets of the function; they must reach AWS's endpoints and the Kubernetes API. Default: the private subnets of
            the cluster's VPC.
        idle_time: A node without pods is removed after this time. Default: 10 minutes.
        capacity_time: If AWS has not launched all instances of a job within this time, the job's other nodes are released. Default:
            10 minutes.
        start_time: If the pods of a job are not all placed within this time, its nodes are released. Default: 20 minutes.
        retry_time: Pause before such a job is tried again. It doubles, up to eightfold, while attempts start nodes without success. Default:
            30 minutes.
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
        node_groups: Sequence[NodeGroup],
        plugins: TrnPlugins,
        vpc_subnets: ec2.SubnetSelection | None = None,
        idle_time: Duration | None = None,
        capacity_time: Duration | None = None,
        start_time: Duration | None = None,
        retry_time: Duration | None = None,
        catalog: Catalog | None = None,
    ) -> None:
        super().__init__(scope, id)
        if not node_groups:
            raise ValueError(f"{self.node.path}: node_groups is empty: there is nothing to scale")
        refuse_duplicates(self, node_groups)
        refuse_config_map(self, cluster)
        view = view_of(cluster)
        limits = {"idle": idle_time, "capacity": capacity_time, "start": start_time, "retry": retry_time}
        settings = {
            "cluster": view.name,
            "device": (catalog or Catalog.load()).eks.resources.device,
            "label": GROUP_LABEL,
            "limits": {key: _MINUTES[key] * 60 if t is None else int(t.to_seconds()) for key, t in limits.items()},
            "types": _by_type(node_groups),
        }
        role = self._function(view, vpc_subnets, settings, node_groups)
        entry = eks.CfnAccessEntry(
            self,
            "Access",
            cluster_name=view.reference,
            principal_arn=role.role_arn,
            type="STANDARD",
            kubernetes_groups=[SCALER],
        )
        self._rule.node.add_dependency(entry, plugins.ready)

    @classmethod
    def from_settings(
        cls,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        cluster: TrnEksCluster,
        network: TrnNetwork,
        node_groups: Sequence[NodeGroup],
        plugins: TrnPlugins,
    ) -> TrnScaler:
        """The scaler of an environment's EKS cluster."""
        limits = environment.eks.scaling
        return cls(
            scope,
            id,
            cluster=cluster,
            node_groups=node_groups,
            plugins=plugins,
            vpc_subnets=ec2.SubnetSelection(subnets=network.private_subnets),
            idle_time=Duration.minutes(limits.idle_minutes),
            capacity_time=Duration.minutes(limits.capacity_minutes),
            start_time=Duration.minutes(limits.start_minutes),
            retry_time=Duration.minutes(limits.retry_minutes),
            catalog=environment.catalog,
        )

    def _function(
        self,
        view: ClusterView,
        subnets: ec2.SubnetSelection | None,
        settings: Mapping[str, object],
        node_groups: Sequence[NodeGroup],
    ) -> iam.Role:
        stack, log = Stack.of(self), log_group(self)
        first, *more = [
            node_groups[i : i + _GROUPS_OF_A_POLICY] for i in range(0, len(node_groups), _GROUPS_OF_A_POLICY)
        ]
        role, _ = function_role(self, log, _reading(view) + _sizes(stack, view, first), in_vpc=True)
        for i, groups in enumerate(more, 1):
            iam.ManagedPolicy(self, f"Groups{i}", statements=_sizes(stack, view, groups), roles=[role])
        function = functions.Function(
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
            security_groups=[view.clients or self._client_group(view)],
            environment={"SETTINGS": self._variable(stack, settings)},
        )
        self._rule = events.Rule(
            self,
            "Rule",
            description=f"Runs the scaler of {view.name}",
            schedule=events.Schedule.rate(_EVERY),
            # no retry: the next run comes soon enough
            targets=[targets.LambdaFunction(function, retry_attempts=0, max_event_age=_EVERY)],
        )
        return role

    def _variable(self, stack: Stack, settings: Mapping[str, object]) -> str:
        text = re.sub(_TOKEN, "x" * _GENERATED, json.dumps(settings, separators=(",", ":")))
        if len(text) > _VARIABLES:
            raise ValueError(
                f"{self.node.path}: node_groups: the names of so many groups are {len(text):,} characters as settings of a function, and "
                f"Lambda allows {_VARIABLES:,}: give the scaler fewer node groups, or shorter names"
            )
        return stack.to_json_string(settings)

    def _client_group(self, view: ClusterView) -> ec2.ISecurityGroup:
        out, what = https_out("AWS, the API"), "Scaler: HTTPS out, nothing in"
        group = ClosedGroup(self, "Group", vpc_id=view.vpc.vpc_id, description=what, egress=out).group
        for api in view.connections.security_groups:  # remote: the rule is in this stack if the cluster is in another
            api.add_ingress_rule(group, ec2.Port.tcp(443), "Kubernetes API", True)
        return group


_MINUTES = {"idle": 10, "capacity": 10, "start": 20, "retry": 30}


def _by_type(node_groups: Iterable[NodeGroup]) -> list[dict[str, object]]:
    """Instance types, with the names of their groups: in the environment, which is also the queue's, and in EKS."""
    types: dict[tuple[str, int], dict[str, str]] = {}
    for group in node_groups:
        kind = (group.fleet.instance_type, group.fleet.devices)
        types.setdefault(kind, {})[group.fleet.resource] = group.nodegroup_name
    return [{"type": name, "devices": devices, "groups": groups} for (name, devices), groups in types.items()]


def _reading(view: ClusterView) -> list[iam.PolicyStatement]:
    """Permissions of the function to read the cluster, the Auto Scaling groups and the instances."""
    return [
        allow(view.arn, "eks:DescribeCluster"),
        # AWS accepts no narrower resource for these
        allow("*", "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"),
    ]


def _sizes(stack: Stack, view: ClusterView, node_groups: Sequence[NodeGroup]) -> list[iam.PolicyStatement]:
    """Permissions to read node groups, and to change the sizes of only their Auto Scaling groups."""
    prefix = f"arn:{stack.partition}:autoscaling:{stack.region}:{stack.account}:autoScalingGroup:*:autoScalingGroupName"
    scaling = [f"{prefix}/eks-{group.nodegroup_name}-*" for group in node_groups]
    return [
        allow([group.nodegroup_arn for group in node_groups], "eks:DescribeNodegroup"),
        allow(
            scaling,
            "autoscaling:SetDesiredCapacity",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            conditions={"StringEquals": {"aws:ResourceTag/eks:cluster-name": view.name}},
        ),
    ]
