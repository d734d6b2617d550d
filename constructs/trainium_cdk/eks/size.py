"""How many nodes a node group is told to have, so that a deployment does not undo a scaling."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct

from trainium_cdk.functions import own_log_of
from trainium_cdk.outputs import GROUP_LABEL

_ID = "TrnNodeGroupSizes"


def kept_size(scope: Construct, id: str, *, cluster: str, group: str, nodes: int, least: int, most: int) -> str:
    """A token: `nodes` when the group is made; from then on as many as it has, within the bounds.

    EKS wants a desired size with every new group (all three sizes or none), and CloudFormation sends all three again when one
    of them changes. It does so only then, and so does this resource ask only then.

    Args:
        cluster: the cluster's name, as plain text: the question needs no cluster the first time, and so must not wait for one.
    """
    stack = Stack.of(scope)
    function = stack.node.try_find_child(_ID) or _function(stack, cluster)
    assert isinstance(function, functions.Function)  # noqa: S101
    asked = CustomResource(
        scope,
        id,
        service_token=function.function_arn,
        resource_type="Custom::TrnNodeGroupSize",
        service_timeout=Duration.minutes(5),
        removal_policy=RemovalPolicy.DESTROY,
        properties={
            "Cluster": cluster, "Label": GROUP_LABEL, "Group": group,
            "Nodes": nodes, "Min": least, "Max": most,
        },
    )  # fmt: skip
    return asked.get_att_string("Nodes")


def _function(stack: Stack, cluster: str) -> functions.Function:
    role = iam.Role(stack, f"{_ID}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["eks:ListNodegroups", "eks:DescribeNodegroup"],
            resources=[
                stack.format_arn(service="eks", resource=kind, resource_name=name)
                for kind, name in (("cluster", cluster), ("nodegroup", f"{cluster}/*/*"))
            ],
        )
    )
    function = functions.Function(
        stack,
        _ID,
        description="Keeps the size of node groups over deployments",
        code=functions.Code.from_inline(Path(__file__).with_name("keep_size.py").read_text("utf-8")),
        handler="index.handler",
        runtime=functions.Runtime.PYTHON_3_14,
        timeout=Duration.minutes(2),
        role=role,
    )
    own_log_of(function, role)
    return function
