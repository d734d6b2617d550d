"""What both kinds of node groups have in common: launch templates, sizes, and the group itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aws_cdk import CfnTag, Fn, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct, IDependable

from trainium_cdk._cdk.custom_resources import custom_resource, permissions_of
from trainium_cdk._cdk.permissions import allow
from trainium_cdk.catalog import InstanceType
from trainium_cdk.eks.interfaces import Interface, Layout, interfaces
from trainium_cdk.eks.view import ClusterView
from trainium_cdk.outputs import GROUP_LABEL, ROLE_LABEL

_Data = ec2.CfnLaunchTemplate
_SIZE = "TrnNodeGroupSize"


def launch_template(
    scope: Construct, *, instance_type: str, root_gib: float, tags: Mapping[str, str], **data: object
) -> ec2.CfnLaunchTemplate:
    """A launch template (not the CDK's construct, which does not support network interfaces)."""
    return ec2.CfnLaunchTemplate(
        scope,
        "Template",
        launch_template_data=_Data.LaunchTemplateDataProperty(
            instance_type=instance_type,
            block_device_mappings=[
                _Data.BlockDeviceMappingProperty(
                    device_name="/dev/xvda",
                    ebs=_Data.EbsProperty(
                        volume_size=root_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                    ),
                )
            ],
            monitoring=_Data.MonitoringProperty(enabled=True),  # metrics each minute
            # one hop: only for programs of the node and pods on its own network
            metadata_options=_Data.MetadataOptionsProperty(http_tokens="required", http_put_response_hop_limit=1),
            tag_specifications=[
                _Data.TagSpecificationProperty(
                    resource_type=kind, tags=[CfnTag(key=k, value=v) for k, v in sorted(tags.items())]
                )
                for kind in ("instance", "volume")
            ],
            **data,  # type: ignore[arg-type]
        ),
    )


def training_template(
    scope: Construct,
    *,
    kind: InstanceType,
    layout: Layout | None,
    security_group_ids: Sequence[str],
    root_gib: float,
    tags: Mapping[str, str],
    user_data: str,
    image_id: str | None,
    placement_group: ec2.IPlacementGroup | bool,
    capacity_reservation_id: str | None,
    capacity_block: bool,
) -> ec2.CfnLaunchTemplate:
    """The launch template of Trainium nodes.

    Args:
        layout: of the EFA interfaces; None for no EFA.
        user_data: as text; empty for none.
        placement_group: an existing one, or whether to create a cluster placement group.
    """
    if isinstance(placement_group, bool):
        placement = ec2.CfnPlacementGroup(scope, "Placement", strategy="cluster").ref if placement_group else None
    else:
        placement = placement_group.placement_group_name
    reservation = _Data.CapacityReservationTargetProperty(capacity_reservation_id=capacity_reservation_id)
    template = launch_template(
        scope,
        instance_type=kind.name,
        root_gib=root_gib,
        tags=tags,
        image_id=image_id,
        user_data=_base64(user_data) if user_data else None,
        security_group_ids=None if layout else list(security_group_ids),
        network_interfaces=_properties(interfaces(kind, layout), tuple(security_group_ids)) if layout else None,
        placement=_Data.PlacementProperty(group_name=placement) if placement else None,
        capacity_reservation_specification=_Data.CapacityReservationSpecificationProperty(
            capacity_reservation_target=reservation
        )
        if capacity_reservation_id
        else None,
        instance_market_options=_Data.InstanceMarketOptionsProperty(market_type="capacity-block")
        if capacity_block
        else None,
    )
    # cfn-lint's lists of types lack new ones; the type is already checked against the catalogue
    template.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E3628"]}})
    return template


@cache
def _base64(text: str) -> str:
    return Fn.base64(text)


@cache
def _properties(
    found: tuple[Interface, ...], security_group_ids: tuple[str, ...]
) -> Sequence[_Data.NetworkInterfaceProperty]:
    return [
        _Data.NetworkInterfaceProperty(
            network_card_index=i.card,
            device_index=i.device,
            interface_type=i.kind,
            groups=list(security_group_ids),
            delete_on_termination=True,
        )
        for i in found
    ]


@dataclass(frozen=True)
class Sizes:
    """Numbers of nodes of a group.

    Attributes:
        nodes: when the group is created.
        least, most: the bounds.
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
    after: Iterable[IDependable],
    labels: Mapping[str, str] | None = None,
    **properties: Any,
) -> eks.CfnNodegroup:
    """A managed node group with node repair, and with the labels by which jobs and Kubernetes select its nodes.

    Args:
        name: value of the label `trainium-cdk/node-group`.
        purpose: value of the label `trainium-cdk/role`.
        after: what must exist before its nodes, without what they need for storage.
        properties: others of the resource.
    """
    desired = _kept_size(scope, "Size", cluster=view.name, group=name, sizes=sizes)
    group = eks.CfnNodegroup(
        scope,
        "Resource",
        # a changed template is a new version, which the group then uses
        launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
            id=template.ref, version=template.attr_latest_version_number
        ),
        scaling_config=eks.CfnNodegroup.ScalingConfigProperty(
            min_size=sizes.least, max_size=sizes.most, desired_size=Token.as_number(desired)
        ),
        node_repair_config=eks.CfnNodegroup.NodeRepairConfigProperty(enabled=True),
        labels={**(labels or {}), GROUP_LABEL: name, ROLE_LABEL: purpose},
        **properties,
    )
    group.node.add_dependency(*after)
    return group


def _kept_size(scope: Construct, id: str, *, cluster: str, group: str, sizes: Sizes) -> str:
    """A token: the size at first, later the group's current size, within the bounds: a deployment must not undo a scaling.

    EKS requires a desired size for every new group (all three sizes or none), and CloudFormation sends all three again if one
    of them changes. Only then does this resource query the current size.

    Args:
        cluster: the cluster's name, as plain text if possible: the first response needs no cluster.
    """
    properties = {"Cluster": cluster, "Label": GROUP_LABEL, "Group": group}
    numbers = {"Nodes": sizes.nodes, "Min": sizes.least, "Max": sizes.most}
    permissions = permissions_of(scope, _SIZE).add(cluster, lambda: [_read_groups(Stack.of(scope), cluster)])
    size = custom_resource(scope, id, kind=_SIZE, properties={**properties, **numbers}, permissions=permissions)
    return size.get_att_string("Nodes")


def _read_groups(stack: Stack, cluster: str) -> iam.PolicyStatement:
    resources = (("cluster", cluster), ("nodegroup", f"{cluster}/*/*"))
    arns = [stack.format_arn(service="eks", resource=kind, resource_name=name) for kind, name in resources]
    return allow(arns, "eks:ListNodegroups", "eks:DescribeNodegroup")
