"""Permissions of pods in AWS: one role for each service account that needs one (EKS Pod Identity)."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

DETECTOR_METRICS = "NeuronHealthCheck"
"""CloudWatch namespace of the node problem detector."""


class PodRole(Construct):
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
        agent = iam.PrincipalWithConditions(
            iam.ServicePrincipal("pods.eks.amazonaws.com"),
            {"StringEquals": {"aws:SourceAccount": account}, "ArnEquals": {"aws:SourceArn": cluster_arn}},
        )
        own = [iam.ManagedPolicy(self, "Policy", statements=list(statements))] if statements else []
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.SessionTagsPrincipal(agent),
            managed_policies=[*own, *(iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in managed)],
        )


def detector_statements(stack: Stack, cluster: str, *, recovery: bool) -> list[iam.PolicyStatement]:
    """Permissions of Neuron's node problem detector: to write metrics and, with recovery, to replace a broken node of the cluster."""
    found = [
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": DETECTOR_METRICS}},
        )
    ]
    if recovery:
        found += [
            iam.PolicyStatement(
                actions=["autoscaling:DescribeAutoScalingInstances", "ec2:DescribeInstances"], resources=["*"]
            ),
            iam.PolicyStatement(
                actions=["autoscaling:SetInstanceHealth"],
                resources=[
                    f"arn:{stack.partition}:autoscaling:{stack.region}:{stack.account}:autoScalingGroup:*:autoScalingGroupName/eks-*"
                ],
                conditions={"StringEquals": {"aws:ResourceTag/eks:cluster-name": cluster}},
            ),
        ]
    return found


def observability_statements(log_groups: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions of the CloudWatch agent and Fluent Bit: to write to their existing log groups, and to read tags and volumes of nodes.

    Args:
        log_groups: ARNs of the log groups, each ending with `:*` (its streams).
    """
    return [
        iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"], resources=list(log_groups)
        ),
        iam.PolicyStatement(actions=["ec2:DescribeTags", "ec2:DescribeVolumes"], resources=["*"]),
    ]


def file_system_statements(kind: str, arns: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions of a storage driver for existing volumes."""
    actions = {
        "efs": ["elasticfilesystem:DescribeMountTargets", "elasticfilesystem:DescribeFileSystems"],
        "fsx": ["fsx:DescribeFileSystems"],
    }[kind]
    return [iam.PolicyStatement(actions=actions, resources=list(arns))]
