"""`Custom::TrnSubnetChoice` chooses a subnet in an availability zone that offers every one of some instance types.

Properties: InstanceTypes, SubnetIds (in order of preference).
Attribute: SubnetId, which is also the physical id: a subnet that is still given, and still offers the types, is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .request import Client, Request, Response


def respond(request: Request, client: Client) -> Response:
    """Physical id: the chosen subnet.

    Raises:
        ValueError: none of the subnets lies in a zone that offers the instance types.
    """
    if request.delete:
        return Response(request.physical_id or "none")
    subnet = _choose(request.properties, request.physical_id, client("ec2"))
    return Response(subnet, {"SubnetId": subnet})


def _choose(properties: Mapping[str, Any], current: str | None, ec2: Any) -> str:
    kinds, subnets = properties["InstanceTypes"], properties["SubnetIds"]
    offered = set.intersection(*(_zones(kind, ec2) for kind in kinds))
    described = ec2.describe_subnets(SubnetIds=subnets)["Subnets"]
    zones = {subnet["SubnetId"]: subnet["AvailabilityZoneId"] for subnet in described}
    for subnet in [current, *subnets]:
        if subnet in zones and zones[subnet] in offered:
            return str(subnet)
    where = ", ".join(f"{subnet} in {zone}" for subnet, zone in sorted(zones.items()))
    fix = f"give a subnet in {' or '.join(sorted(offered))}" if offered else "deploy to a region that offers it"
    raise ValueError(f"no subnet lies in an availability zone that offers {' and '.join(kinds)} ({where}): {fix}")


def _zones(kind: str, ec2: Any) -> set[str]:
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": [kind]}]
    )
    return {offering["Location"] for page in pages for offering in page["InstanceTypeOfferings"]}
