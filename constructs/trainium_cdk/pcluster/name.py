"""The name of a cluster, claimed before the cluster is created."""

from __future__ import annotations

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.custom_resources import custom_resource, permissions_of
from trainium_cdk._cdk.permissions import allow

_KIND = "TrnClusterName"


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
        self.resource = custom_resource(
            self,
            "Resource",
            kind=_KIND,
            properties={
                "ClusterName": cluster_name,
                "DeleteLogs": "yes" if removal_policy == RemovalPolicy.DESTROY else "no",
            },
            permissions=permissions_of(self, _KIND).add(
                cluster_name, lambda: _statements(Stack.of(self), cluster_name)
            ),
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
    return [allow(resources, action) for action, resources in allowed]
