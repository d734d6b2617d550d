"""The size of a node group in deployments, which must not undo a scaling."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.functions import inline_function
from trainium_cdk._cdk.stack_wide import stack_wide
from trainium_cdk.outputs import GROUP_LABEL

_ID = "TrnNodeGroupSizes"


def kept_size(scope: Construct, id: str, *, cluster: str, group: str, nodes: int, least: int, most: int) -> str:
    """A token: `nodes` when the group is created, later its current size, within the bounds.

    EKS requires a desired size for every new group (all three sizes or none), and CloudFormation sends all three again if one
    of them changes. Only then does this resource query the current size.

    Args:
        cluster: the cluster's name, as plain text if possible: the first response needs no cluster.
    """
    size = CustomResource(
        scope,
        id,
        service_token=stack_wide(scope, _ID, _Sizes, _Sizes).token(cluster),
        resource_type="Custom::TrnNodeGroupSize",
        service_timeout=_timeout(),
        removal_policy=RemovalPolicy.DESTROY,
        properties={
            "Cluster": cluster, "Label": GROUP_LABEL, "Group": group,
            "Nodes": nodes, "Min": least, "Max": most,
        },
    )  # fmt: skip
    return size.get_att_string("Nodes")


@cache
def _timeout() -> Duration:
    return Duration.minutes(5)


class _Sizes(Construct):
    """The function of all node groups of a stack."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self._function, self._policy = inline_function(
            self,
            code=Path(__file__).with_name("keep_size.py"),
            description="Keeps the size of node groups over deployments",
        )
        self._arn = self._function.function_arn
        self._clusters: set[str] = set()

    def token(self, cluster: str) -> str:
        """The service token of the function, with permission to read the node groups of `cluster`."""
        if cluster not in self._clusters:
            self._clusters.add(cluster)
            stack = Stack.of(self)
            self._policy.add_statements(
                iam.PolicyStatement(
                    actions=["eks:ListNodegroups", "eks:DescribeNodegroup"],
                    resources=[
                        stack.format_arn(service="eks", resource=kind, resource_name=name)
                        for kind, name in (("cluster", cluster), ("nodegroup", f"{cluster}/*/*"))
                    ],
                )
            )
        return self._arn
