"""The one subnet of a fleet: EFA does not cross subnets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.functions import inline_function
from trainium_cdk._cdk.once import subnet_id
from trainium_cdk._cdk.stack_wide import stack_wide

_ID = "TrnSubnetChooser"


def offering_subnet(scope: Construct, id: str, *, subnets: Sequence[ec2.ISubnet], instance_types: Sequence[str]) -> str:
    """The id of the first of the subnets in an availability zone that offers the instance types.

    With several subnets, AWS is queried during the deployment: the names of zones (`us-west-2a`) mean different zones in different
    accounts, so a template cannot determine which of them offers a type. The choice is kept in later deployments.
    """
    if len(subnets) == 1:
        return subnet_id(subnets[0])
    chooser = stack_wide(scope, _ID, _Chooser, _Chooser)
    chosen = CustomResource(
        scope,
        id,
        service_token=chooser.token,
        resource_type="Custom::TrnSubnetChoice",
        service_timeout=Duration.minutes(5),
        removal_policy=RemovalPolicy.DESTROY,
        properties={
            "InstanceTypes": list(dict.fromkeys(instance_types)),
            "SubnetIds": [subnet.subnet_id for subnet in subnets],
        },
    )
    return chosen.get_att_string("SubnetId")


class _Chooser(Construct):
    """The function of all fleets of a stack."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        function, _ = inline_function(
            self,
            code=Path(__file__).with_name("choose_subnet.py"),
            description="Chooses a subnet in an availability zone that offers some instance types",
            # AWS accepts no narrower resource for these
            statements=[
                iam.PolicyStatement(
                    actions=["ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets"], resources=["*"]
                )
            ],
        )
        self.token = function.function_arn
