"""The one subnet of a fleet: EFA does not cross subnets."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.custom_resources import custom_resource, permissions_of
from trainium_cdk._cdk.once import subnet_id
from trainium_cdk._cdk.permissions import allow

_KIND = "TrnSubnetChoice"


def offering_subnet(scope: Construct, id: str, *, subnets: Sequence[ec2.ISubnet], instance_types: Sequence[str]) -> str:
    """The id of the first of the subnets in an availability zone that offers the instance types.

    With several subnets, AWS is queried during the deployment: the names of zones (`us-west-2a`) mean different zones in different
    accounts, so a template cannot determine which of them offers a type. The choice is kept in later deployments.
    """
    if len(subnets) == 1:
        return subnet_id(subnets[0])
    chosen = custom_resource(
        scope,
        id,
        kind=_KIND,
        properties={
            "InstanceTypes": list(dict.fromkeys(instance_types)),
            "SubnetIds": [subnet.subnet_id for subnet in subnets],
        },
        permissions=permissions_of(scope, _KIND).add(_KIND, _describe),
    )
    return chosen.get_att_string("SubnetId")


def _describe() -> list[iam.PolicyStatement]:
    # AWS accepts no narrower resource for these
    return [allow("*", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets")]
