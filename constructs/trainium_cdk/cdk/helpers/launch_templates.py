"""Launch templates of nodes, for EKS and for AWS PCS, with their network interfaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from trainium_cdk.cdk.helpers.tags import InheritedTags
from trainium_cdk.description.catalog import InstanceType
from trainium_cdk.description.settings.reserved import PLACEMENT_GROUP_ID, is_group

Layout = Literal["efa", "efa-only", "ena-and-efa-only"]
Kind = Literal["interface", "efa", "efa-only"]
_Data = ec2.CfnLaunchTemplate


def launch_template(
    scope: Construct,
    *,
    instance_type: str | None,
    root_gib: float,
    name: str,
    tags: Mapping[str, str] | None = None,
    rules: bool = True,
    root_device: str = "/dev/xvda",
    **data: object,
) -> ec2.CfnLaunchTemplate:
    """A launch template (not the CDK's construct, which does not support network interfaces).

    Args:
        instance_type: None where the service that uses the template has it from elsewhere.
        name: the tag Name of instances and volumes, unless they get another.
        tags: more that they always have. Default: none.
        rules: whether to check all tags at synthesis.
        root_device: name of the image's root volume: Amazon Linux's is /dev/xvda, Ubuntu's /dev/sda1.
    """
    inherited = InheritedTags(scope, kind="AWS::EC2::LaunchTemplate", default={"Name": name}, fixed=tags, rules=rules)
    return ec2.CfnLaunchTemplate(
        scope,
        "Template",
        launch_template_data=_Data.LaunchTemplateDataProperty(
            instance_type=instance_type,
            block_device_mappings=[
                _Data.BlockDeviceMappingProperty(
                    device_name=root_device,
                    ebs=_Data.EbsProperty(
                        volume_size=root_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                    ),
                )
            ],
            monitoring=_Data.MonitoringProperty(enabled=True),  # metrics each minute
            # one hop: only for programs of the node and pods on its own network
            metadata_options=_Data.MetadataOptionsProperty(http_tokens="required", http_put_response_hop_limit=1),
            tag_specifications=inherited.of_instances(),
            **data,  # type: ignore[arg-type]
        ),
        tag_specifications=inherited.of_template(),
    )


def training_template(
    scope: Construct,
    *,
    kind: InstanceType,
    layout: Layout | None,
    security_group_ids: Sequence[str],
    root_gib: float,
    name: str,
    user_data: str,
    image_id: str | None,
    placement_group: ec2.IPlacementGroup | str | bool,
    reservation: str | None,
    capacity_block: bool,
    subnet_id: str | None = None,
    root_device: str = "/dev/xvda",
    tags: Mapping[str, str] | None = None,
    rules: bool = True,
) -> ec2.CfnLaunchTemplate:
    """The launch template of Trainium nodes.

    Args:
        layout: of the EFA interfaces; None for no EFA.
        user_data: as text; empty for none.
        placement_group: an existing one, its name or id, or whether to create a cluster placement group.
        reservation: id of a capacity reservation, or ARN of a resource group of them.
        subnet_id: of the EFA interfaces; None where the service that uses the template sets it.
    """
    target = "capacity_reservation_resource_group_arn" if names_group(scope, reservation) else "capacity_reservation_id"
    template = launch_template(
        scope,
        instance_type=kind.name,
        root_gib=root_gib,
        root_device=root_device,
        name=name,
        tags=tags,
        rules=rules,
        image_id=image_id,
        user_data=_base64(user_data) if user_data else None,
        security_group_ids=None if layout else list(security_group_ids),
        network_interfaces=_properties(interfaces(kind, layout), tuple(security_group_ids), subnet_id)
        if layout
        else None,
        placement=_placement(scope, placement_group),
        capacity_reservation_specification=_Data.CapacityReservationSpecificationProperty(
            capacity_reservation_target=_Data.CapacityReservationTargetProperty(**{target: reservation})
        )
        if reservation
        else None,
        instance_market_options=_Data.InstanceMarketOptionsProperty(market_type="capacity-block")
        if capacity_block
        else None,
    )
    # cfn-lint's lists of types lack new ones; the type is already checked against the catalogue
    template.add_metadata("cfn-lint", {"config": {"ignore_checks": ["E3628"]}})
    return template


def names_group(scope: Construct, reservation: str | None) -> bool:
    """Return whether a reservation is the ARN of a resource group of reservations. A token counts if it resolves to a resource's attribute
    `Arn`, or to text with a group's ARN. Any other token is an id."""
    if reservation is None or is_group(reservation):
        return reservation is not None
    if not Token.is_unresolved(reservation):
        return False
    found = Stack.of(scope).resolve(reservation)
    attribute = found.get("Fn::GetAtt") if isinstance(found, dict) else None
    return (attribute is not None and list(attribute)[-1] == "Arn") or is_group(json.dumps(found))


def groups_among(scope: Construct, reservations: Iterable[str | None]) -> frozenset[str]:
    """Return the reservations that are ARNs of resource groups."""
    return frozenset(one for one in reservations if one and names_group(scope, one))


def _placement(
    scope: Construct, chosen: ec2.IPlacementGroup | str | bool
) -> ec2.CfnLaunchTemplate.PlacementProperty | None:
    if isinstance(chosen, bool):
        chosen = ec2.CfnPlacementGroup(scope, "Placement", strategy="cluster").ref if chosen else ""
    elif not isinstance(chosen, str):
        chosen = chosen.placement_group_name
    if not chosen:
        return None
    if PLACEMENT_GROUP_ID.fullmatch(chosen):
        return _Data.PlacementProperty(group_id=chosen)
    return _Data.PlacementProperty(group_name=chosen)


@dataclass(frozen=True)
class Interface:
    """One network interface of a launch template.

    Attributes:
        card: network card.
        device: device index on the card.
        kind: EC2's interface type; `efa-only` carries only EFA, and has no IP address.
    """

    card: int
    device: int
    kind: Kind


def interfaces(instance: InstanceType, layout: Layout) -> tuple[Interface, ...]:
    """All EFA interfaces of an instance type; empty if it has no EFA: EC2 then creates one interface.

    Card 0, device 0 has the node's own address, so it is never `efa-only`. Three layouts are in use for these instances:

    - `efa`: EFA with an address on each card, as in the hand-written tutorials. A node needs as many addresses as it has cards.
    - `efa-only`: EFA with an address on card 0, `efa-only` on the others.
    - `ena-and-efa-only`: plain ENA on card 0, and `efa-only` on every card (EC2 user guide, EFA on accelerated instances).
    """
    count = instance.efa_interfaces
    if not count:
        return ()
    if layout == "ena-and-efa-only":
        first = (Interface(0, 0, "interface"), Interface(0, 1, "efa-only"))
        return first + tuple(Interface(card, 0, "efa-only") for card in range(1, count))
    others: Kind = "efa" if layout == "efa" else "efa-only"
    return (Interface(0, 0, "efa"), *(Interface(card, 1, others) for card in range(1, count)))


@cache
def _base64(text: str) -> str:
    return Fn.base64(text)


@cache
def _properties(
    found: tuple[Interface, ...], security_group_ids: tuple[str, ...], subnet_id: str | None
) -> Sequence[_Data.NetworkInterfaceProperty]:
    return [
        _Data.NetworkInterfaceProperty(
            network_card_index=i.card,
            device_index=i.device,
            interface_type=i.kind,
            groups=list(security_group_ids),
            subnet_id=subnet_id,
            delete_on_termination=True,
        )
        for i in found
    ]
