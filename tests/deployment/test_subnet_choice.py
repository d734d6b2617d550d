"""`Custom::TrnSubnetChoice`: a zone that offers the type, and the same one in later deployments."""

from __future__ import annotations

from typing import Any

import pytest

from trainium_cdk.cdk.deployment.nodes import choose_subnet as respond
from trainium_cdk.cdk.deployment.request import Request


class Ec2:
    """What the function requests from EC2."""

    def __init__(self, *offered: str) -> None:
        self.offered = offered

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_instance_type_offerings"
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        assert request["LocationType"] == "availability-zone-id"
        assert request["Filters"] == [{"Name": "instance-type", "Values": ["trn1.32xlarge"]}]
        return [{"InstanceTypeOfferings": [{"Location": zone}]} for zone in self.offered] or [
            {"InstanceTypeOfferings": []}
        ]

    def describe_subnets(self, **request: Any) -> dict[str, Any]:
        return {"Subnets": [{"SubnetId": s, "AvailabilityZoneId": f"usw2-az{s[-1]}"} for s in request["SubnetIds"]]}


@pytest.mark.parametrize(
    ("current", "offered", "expected"),
    [
        (None, ("usw2-az3", "usw2-az2"), "subnet-2"),
        ("subnet-3", ("usw2-az3", "usw2-az2"), "subnet-3"),
        ("subnet-9", ("usw2-az3",), "subnet-3"),
        ("subnet-1", ("usw2-az3",), "subnet-3"),
    ],
)
def test_the_subnet_is_in_a_zone_that_offers_the_type_and_stays(current: Any, offered: Any, expected: str) -> None:
    wanted = {"InstanceTypes": ["trn1.32xlarge"], "SubnetIds": ["subnet-1", "subnet-2", "subnet-3"]}
    response = respond(Request("Update", "stack", wanted, current), lambda _: Ec2(*offered))
    assert (response.physical_id, response.attributes) == (expected, {"SubnetId": expected})


@pytest.mark.parametrize(("physical_id", "expected"), [("subnet-1", "subnet-1"), (None, "none")])
def test_a_deletion_asks_nothing(physical_id: str | None, expected: str) -> None:
    assert respond(Request("Delete", "stack", {}, physical_id), pytest.fail).physical_id == expected


@pytest.mark.parametrize(("offered", "fix"), [(("usw2-az4",), "give a subnet in usw2-az4"), ((), "deploy to a region that offers it")])  # fmt: skip
def test_no_subnet_fits(offered: Any, fix: str) -> None:
    request = Request("Create", "stack", {"InstanceTypes": ["trn1.32xlarge"], "SubnetIds": ["subnet-1"]})
    with pytest.raises(ValueError, match=rf"offers trn1.32xlarge \(subnet-1 in usw2-az1\): {fix}"):
        respond(request, lambda _: Ec2(*offered))
