"""EC2's checks before a launch, and DryRun, which ministack ignores by launching the instance."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any
from xml.sax.saxutils import escape

from ministack.services import ec2

from sandbox.emulator.ec2_catalogue import offered
from sandbox.emulator.query import ApiError, Response, call_ec2

_KEPT = {
    "_placement": "Placement.GroupName",
    "_reservation": "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
    "_placement_id": "Placement.GroupId",
    "_reservation_group": "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationResourceGroupArn",
    "_market": "InstanceMarketOptions.MarketType",
}
Action = Callable[[dict[str, Any]], Response]


def _interfaces(params: dict[str, Any]) -> list[str]:
    """The parameter prefixes of the request's network interfaces."""
    numbers = {
        key.split(".")[1] for key in params if key.startswith("NetworkInterface.") and key.split(".")[1].isdigit()
    }
    return [f"NetworkInterface.{number}." for number in sorted(numbers, key=int)]


def check_launch(params: dict[str, Any]) -> None:
    """Raise RunInstances' ApiError for a type, subnet, group, key or image that does not exist."""
    if ec2._p(params, "LaunchTemplate.LaunchTemplateId") or ec2._p(params, "LaunchTemplate.LaunchTemplateName"):
        return  # the checked values are in the template
    instance_type = ec2._p(params, "InstanceType") or "m1.small"
    if not offered(instance_type):
        raise ApiError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    specifications = _interfaces(params)
    subnets = [ec2._p(params, "SubnetId"), *(ec2._p(params, f"{at}SubnetId") for at in specifications)]
    for subnet in filter(None, subnets):
        if subnet not in ec2._subnets:
            raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
    groups = ec2._parse_member_list(params, "SecurityGroupId")
    for at in specifications:
        groups += ec2._parse_member_list(params, f"{at}SecurityGroupId")
    for group in groups:
        if group not in ec2._security_groups:
            raise ApiError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
    key = ec2._p(params, "KeyName")
    if key and key not in ec2._key_pairs:
        raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
    image = ec2._p(params, "ImageId")
    if image and call_ec2("DescribeImages", ImageId=[image]).find(".//imageId") is None:
        raise ApiError("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")


def place(instance: dict[str, Any], *, address_chosen: bool) -> None:
    """Place a new instance in its subnet: its zone, its addresses, and a public address only if the subnet assigns one.

    ministack launches everything into zone a, with an address outside the subnet and a public address.
    """
    subnet = ec2._subnets.get(instance["SubnetId"])
    if subnet is None:
        return
    instance["Placement"]["AvailabilityZone"] = subnet["AvailabilityZone"]
    if not subnet.get("MapPublicIpOnLaunch"):
        instance.update(PublicIpAddress="", PublicDnsName="")
    if not address_chosen:
        taken = {other["PrivateIpAddress"] for other in ec2._instances.values() if other is not instance}
        addresses = itertools.islice(IPv4Network(subnet["CidrBlock"]).hosts(), 3, None)  # AWS reserves the first four
        address = next(str(free) for free in addresses if str(free) not in taken)
        instance["PrivateIpAddress"] = address
        instance["PrivateDnsName"] = f"ip-{address.replace('.', '-')}.ec2.internal"


def keep_in_templates() -> None:
    """Launch templates keep where to launch, which ministack drops: the placement group, and the capacity reservation."""
    parse, render = ec2._parse_lt_data, ec2._lt_version_inner_xml

    def parsed(params: dict[str, Any]) -> dict[str, Any]:
        kept = {name: ec2._p(params, f"LaunchTemplateData.{path}") for name, path in _KEPT.items()}
        return {**parse(params), **{name: value for name, value in kept.items() if value}}

    def rendered(version: dict[str, Any]) -> str:
        data, text = version["LaunchTemplateData"], str(render(version))
        more = "".join(
            _nested([part[0].lower() + part[1:] for part in path.split(".")], str(data[name]))
            for name, path in _KEPT.items()
            if name in data
        )
        return text.replace("</launchTemplateData>", f"{more}</launchTemplateData>")

    ec2._parse_lt_data, ec2._lt_version_inner_xml = parsed, rendered


def _nested(tags: list[str], text: str) -> str:
    return f"<{tags[0]}>{_nested(tags[1:], text) if tags[1:] else escape(text)}</{tags[0]}>"


def install_placement() -> None:
    """Make every launch call `place`."""
    launch, render = ec2._launch_instances_internal, ec2._instance_xml

    def placed(**wanted: Any) -> list[dict[str, Any]]:
        created: list[dict[str, Any]] = launch(**wanted)
        for instance in created:
            place(instance, address_chosen=bool(wanted.get("requested_private_ip")))
        return created

    def without_empty_address(instance: dict[str, Any]) -> str:
        return str(render(instance)).replace("<ipAddress></ipAddress>", "")

    ec2._launch_instances_internal = placed
    ec2._instance_xml = without_empty_address


def filter_instances() -> None:
    """DescribeInstances follows the filters that ministack ignores, and refuses those that nothing here follows."""
    matches = ec2._matches_filters
    more = {"instance-id": "InstanceId", "private-ip-address": "PrivateIpAddress", "vpc-id": "VpcId"}
    known = {"instance-state-name", "instance-type", "image-id", "tag-key", "tag-value", *more}

    def all_match(instance: dict[str, Any], filters: dict[str, list[str]]) -> bool:
        for name in filters:
            if name not in known and not name.startswith("tag:"):
                raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
        return all(instance.get(more[n]) in filters[n] for n in more if n in filters) and bool(
            matches(instance, filters)
        )

    ec2._matches_filters = all_match


def _with_dry_run(name: str, action: Action) -> Action:
    def run(params: dict[str, Any]) -> Response:
        if name == "RunInstances":
            check_launch(params)
        if (ec2._p(params, "DryRun") or "").lower() == "true":
            raise ApiError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
        return action(params)

    return run


def _terminate(action: Action) -> Action:
    """TerminateInstances deletes the volumes that are marked for it; ministack kept them."""

    def run(params: dict[str, Any]) -> Response:
        answer = action(params)
        ended = set(ec2._parse_member_list(params, "InstanceId")) & set(ec2._instances)
        for volume_id, volume in list(ec2._volumes.items()):
            if any(use["InstanceId"] in ended and use["DeleteOnTermination"] for use in volume["Attachments"]):
                del ec2._volumes[volume_id]
        return answer

    return run


def wrapped_actions() -> dict[str, Action]:
    """ministack's mutating actions, with the checks in front."""
    ec2._ACTION_MAP["TerminateInstances"] = _terminate(ec2._ACTION_MAP["TerminateInstances"])
    return {
        name: _with_dry_run(name, action)
        for name, action in ec2._ACTION_MAP.items()
        if not name.startswith(("Describe", "Get"))
    }
