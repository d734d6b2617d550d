"""Endpoints of VPCs: by VPC, and whether an interface endpoint has the service's own names, which ministack leaves out."""

from __future__ import annotations

from typing import Any

from ministack.services import ec2

from sandbox.emulator.query import ApiError, Response, ec2_response

_create = ec2._ACTION_MAP["CreateVpcEndpoint"]
KEYS = (
    "VpcEndpointId", "VpcEndpointType", "VpcId", "ServiceName", "State", "RouteTableIds", "SubnetIds", "PrivateDnsEnabled", "OwnerId",
)  # fmt: skip


def create_endpoint(params: dict[str, Any]) -> Response:
    """PrivateDnsEnabled is true for an interface endpoint by default (EC2 API reference)."""
    before = set(ec2._vpc_endpoints)
    answer: Response = _create(params)
    for id in set(ec2._vpc_endpoints) - before:
        endpoint = ec2._vpc_endpoints[id]
        interface = endpoint["VpcEndpointType"] == "Interface"
        endpoint["PrivateDnsEnabled"] = interface and ec2._p(params, "PrivateDnsEnabled", "true") == "true"
    return answer


def describe_endpoints(params: dict[str, Any]) -> Response:
    """By id, or by VPC, or all."""
    ids, filters = ec2._parse_member_list(params, "VpcEndpointId"), ec2._parse_filters(params)
    if unknown := sorted(set(filters) - {"vpc-id"}):
        raise ApiError("InvalidParameterValue", f"the sandbox does not know the filter {unknown[0]}")
    found = [
        {key: each[key] for key in KEYS if key in each} | {"Tags": ec2._tags.get(id, [])}
        for id, each in ec2._vpc_endpoints.items()
        if (not ids or id in ids) and each["VpcId"] in filters.get("vpc-id", [each["VpcId"]])
    ]
    return ec2_response("DescribeVpcEndpoints", {"VpcEndpoints": found})


ACTIONS = {"CreateVpcEndpoint": create_endpoint, "DescribeVpcEndpoints": describe_endpoints}
