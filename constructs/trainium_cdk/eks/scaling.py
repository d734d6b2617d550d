"""`TrnScaler`: starts and stops Trainium nodes for gangs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Duration, IgnoreMode, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct, IDependable

from trainium_cdk._cdk.functions import IN_A_VPC, Statement, allow, function_role, log_group
from trainium_cdk.eks.access import SCALER
from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.node_group import TrnNodeGroup
from trainium_cdk.network import TrnNetwork
from trainium_cdk.outputs import GROUP_LABEL, eks_fleets
from trainium_cdk.settings import Environment

_HERE = Path(__file__).parent
_MEMORY_MIB = 512
_EVERY = Duration.minutes(1)


class TrnScaler(Construct):
    """A function that sets the sizes of the node groups, each minute, to what Volcano's gangs need (see `scaler.decide`).

    A function and not a pod: it needs no image and no node, its log outlives the cluster, and its permissions are one IAM role's:
    to change the size of these groups, and in Kubernetes to list pods and gangs, cordon nodes and write annotations. It costs well
    below one dollar a month.

    Cluster Autoscaler and Karpenter do not fit gangs: they react to pods marked `Unschedulable`, one by one, and Volcano marks
    the members of a waiting gang that would fit as `Schedulable`. Kueue's atomic provisioning takes no Volcano jobs.

    Args:
        environment: its fleets, and `eks.scaling`.
        groups: the node groups, by their names in the environment.
        after: what must be there before the first run: Volcano and the scaler's Kubernetes role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        cluster: TrnEksCluster,
        network: TrnNetwork,
        groups: Mapping[str, TrnNodeGroup],
        after: IDependable,
    ) -> None:
        super().__init__(scope, id)
        stack, limits = Stack.of(self), environment.eks.scaling
        names = {name: group.nodegroup_name for name, group in groups.items()}
        settings = {
            "cluster": cluster.name,
            "device": environment.catalog.eks.resources.device,
            "label": GROUP_LABEL,
            "limits": {
                "idle": limits.idle_minutes * 60,
                "capacity": limits.capacity_minutes * 60,
                "start": limits.start_minutes * 60,
                "retry": limits.retry_minutes * 60,
            },
            "fleets": [
                {
                    "name": fleet.resource,
                    "nodegroup": names[fleet.resource],
                    "instance_type": fleet.instance_type,
                    "devices": fleet.devices,
                    "queue": fleet.queue,
                }
                for fleet in eks_fleets(environment)
            ],
        }
        log = log_group(self)
        statements = _statements(stack, cluster, list(names.values()))
        may = [iam.PolicyStatement.from_json(statement) for statement in statements]
        role = function_role(self, log, may, [IN_A_VPC])
        function = functions.Function(
            self,
            "Resource",
            description=f"Starts and stops the Trainium nodes of {cluster.name} for waiting jobs",
            code=functions.Code.from_asset(
                str(_HERE), exclude=["*", "!scaler", "scaler/*", "!scaler/*.py"], ignore_mode=IgnoreMode.GIT
            ),
            handler="scaler.function.handler",
            runtime=functions.Runtime.PYTHON_3_14,
            memory_size=_MEMORY_MIB,
            timeout=Duration.seconds(55),
            role=role,
            log_group=log,
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=list(network.private_subnets)),
            security_groups=[cluster.client_group],
            environment={"SETTINGS": stack.to_json_string(settings)},
        )
        entry = eks.CfnAccessEntry(
            self,
            "Access",
            cluster_name=cluster.resource.ref,
            principal_arn=role.role_arn,
            type="STANDARD",
            kubernetes_groups=[SCALER],
        )
        rule = events.Rule(
            self,
            "Rule",
            description=f"Runs the scaler of {cluster.name}",
            schedule=events.Schedule.rate(_EVERY),
            # the next run comes soon enough
            targets=[targets.LambdaFunction(function, retry_attempts=0, max_event_age=_EVERY)],
        )
        rule.node.add_dependency(entry, after)


def _statements(stack: Stack, cluster: TrnEksCluster, nodegroups: list[str]) -> list[Statement]:
    """What the function does in AWS: looks at the node groups, and changes the sizes of their Auto Scaling groups alone."""
    groups = [
        stack.format_arn(service="eks", resource="nodegroup", resource_name=f"{cluster.name}/{n}/*") for n in nodegroups
    ]
    scaling = [
        f"arn:{stack.partition}:autoscaling:{stack.region}:{stack.account}:autoScalingGroup:*:autoScalingGroupName/eks-{n}-*"
        for n in nodegroups
    ]
    return [
        {**allow(cluster.arn, "eks:DescribeCluster")},
        {**allow(groups, "eks:DescribeNodegroup")},
        # AWS takes no narrower resource for these
        {**allow("*", "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances")},
        {
            **allow(scaling, "autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"),
            "Condition": {"StringEquals": {"aws:ResourceTag/eks:cluster-name": cluster.name}},
        },
    ]
