"""The size of a node group in deployments, which must not undo a scaling."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.custom_resources import custom_resource, permissions_of
from trainium_cdk._cdk.permissions import allow
from trainium_cdk.outputs import GROUP_LABEL

_KIND = "TrnNodeGroupSize"


def kept_size(scope: Construct, id: str, *, cluster: str, group: str, nodes: int, least: int, most: int) -> str:
    """A token: `nodes` when the group is created, later its current size, within the bounds.

    EKS requires a desired size for every new group (all three sizes or none), and CloudFormation sends all three again if one
    of them changes. Only then does this resource query the current size.

    Args:
        cluster: the cluster's name, as plain text if possible: the first response needs no cluster.
    """
    size = custom_resource(
        scope,
        id,
        kind=_KIND,
        properties={
            "Cluster": cluster, "Label": GROUP_LABEL, "Group": group,
            "Nodes": nodes, "Min": least, "Max": most,
        },
        permissions=permissions_of(scope, _KIND).add(cluster, lambda: [_read_groups(Stack.of(scope), cluster)]),
    )  # fmt: skip
    return size.get_att_string("Nodes")


def _read_groups(stack: Stack, cluster: str) -> iam.PolicyStatement:
    resources = (("cluster", cluster), ("nodegroup", f"{cluster}/*/*"))
    arns = [stack.format_arn(service="eks", resource=kind, resource_name=name) for kind, name in resources]
    return allow(arns, "eks:ListNodegroups", "eks:DescribeNodegroup")
