"""A CloudFormation custom resource that chooses a subnet in an availability zone that offers every one of some instance types.

Properties: InstanceTypes, SubnetIds (in order of preference).
Attribute: SubnetId, which is also the physical id: a subnet that is still given, and still offers the types, is kept.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    response: dict[str, Any] = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    response |= {"Status": "SUCCESS", "PhysicalResourceId": event.get("PhysicalResourceId", "none")}
    try:
        if event["RequestType"] != "Delete":
            subnet = choose(event["ResourceProperties"], event.get("PhysicalResourceId"), boto3.client("ec2"))
            response |= {"PhysicalResourceId": subnet, "Data": {"SubnetId": subnet}}
    except Exception as e:  # CloudFormation waits for a response, whatever happens
        print(f"{type(e).__name__}: {e}")
        response |= {"Status": "FAILED", "Reason": str(e)}
    body = json.dumps(response).encode()
    request = urllib.request.Request(event["ResponseURL"], body, {"Content-Type": ""}, method="PUT")  # noqa: S310  CloudFormation's
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310
        pass


def choose(properties: dict[str, Any], current: str | None, ec2: Any) -> str:
    """The current subnet if it still fits, else the first that does.

    Raises:
        ValueError: none of the subnets lies in a zone that offers the instance types.
    """
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
