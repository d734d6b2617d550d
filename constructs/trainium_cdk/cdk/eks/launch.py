"""Common parts of both kinds of node groups: sizes, and the group itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import CustomResource, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.eks.view import ClusterView
from trainium_cdk.cdk.helpers.custom_resources import custom_resource, permissions_of
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import once, stack_of
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL

_SIZE = "TrnNodeGroupSize"


@dataclass(frozen=True)
class Sizes:
    """Numbers of nodes of a group.

    Attributes:
        nodes: when the group is created. least, most: the bounds.
    """

    nodes: int
    least: int
    most: int


def managed_group(
    scope: Construct,
    *,
    view: ClusterView,
    name: str,
    purpose: str,
    sizes: Sizes,
    template: ec2.CfnLaunchTemplate,
    labels: Mapping[str, str] | None = None,
    id: str = "Resource",
    **properties: Any,
) -> tuple[eks.CfnNodegroup, CustomResource]:
    """A managed node group with node repair, and with the labels by which jobs and Kubernetes select its nodes. Its instances and volumes
    have the tags of `Tags.of`, by their launch template; the group itself has none.

    Its size is returned too: the group waits for what its size waits for.

    Args:
        name: value of the label `trainium-cdk/node-group`.
        purpose: value of the label `trainium-cdk/role`.
        id: of the group in `scope`; a group with another one replaces it.
        properties: others of the resource.
    """
    size = _kept_size(scope, "Size", cluster=view.name, group=name, sizes=sizes)
    group = eks.CfnNodegroup(
        scope,
        id,
        # a changed template is a new version, which the group then uses
        launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
            id=template.ref, version=template.attr_latest_version_number
        ),
        scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
            min_size=sizes.least,
            max_size=sizes.most,
            desired_size=Token.as_number(size.get_att_string("Nodes")),
        ),
        node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
        labels={**(labels or {}), GROUP_LABEL: name, ROLE_LABEL: purpose},
        **properties,
    )
    once(scope, "node").default_child = group
    # a new tag would come with the template that it changes, and EKS takes one of the two at a time (aws-cdk issue 16644)
    group.add_property_deletion_override("Tags")
    return group, size


def _kept_size(scope: Construct, id: str, *, cluster: str, group: str, sizes: Sizes) -> CustomResource:
    """Its attribute `Nodes`: the size at first, later the group's current size, within the bounds: a deployment must not undo a scaling.

    EKS requires a desired size for every new group (all three sizes or none), and CloudFormation sends all three again if one
    of them changes. Only then does this resource query the current size.

    Args:
        cluster: the cluster's name, as plain text if possible: the first response needs no cluster.
    """
    properties = {"Cluster": cluster, "Label": GROUP_LABEL, "Group": group}
    numbers = {"Nodes": sizes.nodes, "Min": sizes.least, "Max": sizes.most}
    permissions = permissions_of(scope, _SIZE).add(cluster, lambda: [_read_groups(stack_of(scope), cluster)])
    return custom_resource(scope, id, kind=_SIZE, properties={**properties, **numbers}, permissions=permissions)


def _read_groups(stack: Stack, cluster: str) -> iam.PolicyStatement:
    resources = (("cluster", cluster), ("nodegroup", f"{cluster}/*/*"))
    arns = [stack.format_arn(service="eks", resource=kind, resource_name=name) for kind, name in resources]
    return allow(arns, "eks:ListNodegroups", "eks:DescribeNodegroup")
