"""Permissions of pods in AWS: one role for each service account that needs one (EKS Pod Identity)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards, aws_policies
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import StackPart, place_of

DETECTOR_METRICS = "NeuronHealthCheck"
"""CloudWatch namespace of the node problem detector."""


class PodRole(StackPart):
    """A role that only pods of this cluster may assume, through the Pod Identity agent."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster_arn: str,
        account: str,
        statements: Sequence[iam.PolicyStatement] = (),
        managed: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        own = [iam.ManagedPolicy(self, "Policy", statements=list(statements))] if statements else []
        for policy in own:
            acknowledge_wildcards(policy, statements, scope)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=_agent(account, cluster_arn),
            managed_policies=[*own, *aws_policies(self, *managed)],
        )


@cache
def _agent(account: str, cluster_arn: str) -> iam.SessionTagsPrincipal:
    return iam.SessionTagsPrincipal(
        iam.PrincipalWithConditions(
            iam.ServicePrincipal("pods.eks.amazonaws.com"),
            {"StringEquals": {"aws:SourceAccount": account}, "ArnEquals": {"aws:SourceArn": cluster_arn}},
        )
    )


def detector_statements(stack: Stack, cluster: str, *, recovery: bool) -> list[iam.PolicyStatement]:
    """Permissions of Neuron's node problem detector: to write metrics and, with recovery, to replace a broken node of the cluster."""
    metrics = {"StringEquals": {"cloudwatch:namespace": DETECTOR_METRICS}}
    found = [allow("*", "cloudwatch:PutMetricData", conditions=metrics)]
    if recovery:
        place = place_of(stack)
        groups = f"arn:{place.partition}:autoscaling:{place.region}:{place.account}:autoScalingGroup:*:autoScalingGroupName/eks-*"
        own = {"StringEquals": {"aws:ResourceTag/eks:cluster-name": cluster}}
        found.append(allow("*", "autoscaling:DescribeAutoScalingInstances", "ec2:DescribeInstances"))
        found.append(allow(groups, "autoscaling:SetInstanceHealth", conditions=own))
    return found


def observability_statements(log_groups: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions of the CloudWatch agent and Fluent Bit: to write to their existing log groups, and to read tags and volumes of nodes.

    Args:
        log_groups: ARNs of the log groups, each ending with `:*` (its streams).
    """
    return [
        allow(log_groups, "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"),
        allow("*", "ec2:DescribeTags", "ec2:DescribeVolumes"),
    ]


def file_system_statements(stack: Stack, kind: str, ids: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions of a storage driver for existing file systems."""
    service, actions = {
        "efs": ("elasticfilesystem", ("DescribeMountTargets", "DescribeFileSystems")),
        "fsx": ("fsx", ("DescribeFileSystems",)),
    }[kind]
    arns = [stack.format_arn(service=service, resource="file-system", resource_name=each) for each in ids]
    return [allow(arns, *(f"{service}:{action}" for action in actions))]
