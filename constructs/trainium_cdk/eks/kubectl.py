"""The function that installs manifests and charts in the cluster: the CDK's own, with restricted logs and permissions."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnCondition, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer
from constructs import Construct

from trainium_cdk._cdk.functions import IN_A_VPC, allow, l1, own_logs, public_registry

_PULL = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:BatchImportUpstreamImage",
    "ecr:GetDownloadUrlForLayer",
)
MEMORY_MIB = 1024
"""MiB. Helm and kubectl together run out of memory with 256 MiB (aws-cdk issue 11248)."""


class KubectlProvider(Construct):
    """The CDK's kubectl provider in private subnets, in a security group of the stack.

    Not in the cluster's own group: EKS deletes that one with the cluster, which fails while it has the function's network
    interfaces, which Lambda deletes late. Both functions write to log groups of the stack, and their roles allow only
    what they do.

    Args:
        charts: ARNs of the ECR repositories that charts are pulled from. Default: none, as charts come from public registries.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        cluster: eks.ICluster,
        subnets: Sequence[ec2.ISubnet],
        security_group: ec2.ISecurityGroup,
        charts: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        provider = eks.KubectlProvider(
            self,
            "Provider",
            cluster=cluster,
            kubectl_layer=KubectlV35Layer(self, "Kubectl"),
            private_subnets=list(subnets),
            security_groups=[security_group],
            memory=Size.mebibytes(MEMORY_MIB),
        )
        self.service_token = provider.service_token
        assert provider.role is not None  # noqa: S101  it creates one
        self.role: iam.IRole = provider.role
        """The role that calls the Kubernetes API."""
        pull = [
            *public_registry(),
            *([allow("*", "ecr:GetAuthorizationToken"), allow(list(charts), *_PULL)] if charts else []),
        ]
        for function in [node for node in provider.node.find_all() if isinstance(node, functions.Function)]:
            assert function.role is not None  # noqa: S101  it creates one
            handler = function.role.node.path == self.role.node.path
            # otherwise policies of a CDK feature flag, and a condition of a removed policy, would remain
            for child in [c for c in function.node.children if isinstance(c, logs.LogGroup | CfnCondition)]:
                function.node.try_remove_child(child.node.id)
            own_logs(function, l1(function), l1(function.role), also=pull if handler else [], managed=[IN_A_VPC])
