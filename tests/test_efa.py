"""`TrnEfaSecurityGroup`: all traffic to itself in both directions, and none in from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Stack

from tests.cdk import IN_US_EAST_1, findings, only, properties, resources, synth
from trainium_cdk import settings
from trainium_cdk.cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.cdk.network import TrnNetwork


@pytest.mark.parametrize("env", [None, IN_US_EAST_1])
@pytest.mark.parametrize("internet", [True, False])
def test_efa_rules(internet: bool, env: Any) -> None:
    def build(stack: Stack) -> None:
        vpc = TrnNetwork(stack, "Network", network=settings.Network(zone_ids=("use1-az6",))).vpc
        TrnEfaSecurityGroup(stack, "Efa", vpc=vpc, internet=internet)

    template = synth(build, env=env)
    [group] = resources(template, "EC2::SecurityGroup")
    itself = {"Fn::GetAtt": [group, "GroupId"]}
    [inward] = properties(template, "EC2::SecurityGroupIngress")
    [outward] = properties(template, "EC2::SecurityGroupEgress")
    assert (inward["IpProtocol"], inward["GroupId"], inward["SourceSecurityGroupId"]) == ("-1", itself, itself)
    assert (outward["IpProtocol"], outward["GroupId"], outward["DestinationSecurityGroupId"]) == ("-1", itself, itself)
    found = only(template, "EC2::SecurityGroup")
    # set in the group itself: otherwise EC2 adds a rule that allows all outbound traffic
    [beyond] = found["SecurityGroupEgress"]
    assert (beyond["IpProtocol"], beyond["CidrIp"]) == (
        ("-1", "0.0.0.0/0") if internet else ("icmp", "255.255.255.255/32")
    )
    assert "SecurityGroupIngress" not in found
    assert "Tags" not in found
    assert findings(template) == []
