"""The name of a cluster, claimed before the cluster is created."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.functions import inline_function


class TrnClusterName(Construct):
    """Fails the deployment if the cluster's name is taken. Let the cluster depend on it: ParallelCluster's provider deletes
    by name when a creation is rolled back, whichever stack created the cluster.

    Args:
        cluster_name: ParallelCluster creates a CloudFormation stack of this name.
        removal_policy: for the cluster's log group when the cluster is deleted. After a failed creation the log group is kept
            for its retention time. Default: DESTROY.
    """

    def __init__(
        self, scope: Construct, id: str, *, cluster_name: str, removal_policy: RemovalPolicy = RemovalPolicy.DESTROY
    ) -> None:
        super().__init__(scope, id)
        function, _ = inline_function(
            self,
            code=Path(__file__).with_name("claim_name.py"),
            description="Claims the name of a ParallelCluster cluster",
            statements=_statements(Stack.of(self), cluster_name),
        )
        self.resource = CustomResource(
            self,
            "Resource",
            service_token=function.function_arn,
            resource_type="Custom::TrnClusterName",
            service_timeout=Duration.minutes(5),
            removal_policy=RemovalPolicy.DESTROY,
            properties={
                "ClusterName": cluster_name,
                "DeleteLogs": "yes" if removal_policy == RemovalPolicy.DESTROY else "no",
            },
        )


def _statements(stack: Stack, cluster_name: str) -> list[iam.PolicyStatement]:
    cluster_stack = stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{cluster_name}/*")
    log_groups = f"arn:{stack.partition}:logs:{stack.region}:{stack.account}:log-group:"
    allowed = (
        ("cloudformation:DescribeStacks", [cluster_stack, stack.stack_id]),
        ("cloudformation:ListStackResources", [stack.stack_id]),
        ("logs:DescribeLogGroups", [f"{log_groups}*"]),
        ("logs:DeleteLogGroup", [f"{log_groups}/aws/parallelcluster/{cluster_name}-*"]),
    )
    return [iam.PolicyStatement(actions=[action], resources=resources) for action, resources in allowed]
