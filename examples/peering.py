"""A peering connection to a VPC of another account that has the data; the other side lets CloudFormation accept it.

    cdk deploy --app "python examples/peering.py" -c role=arn:aws:iam::444455556666:role/AcceptPeering

The routes of the other account remain a manual step; an output has the command.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from trainium_cdk import TrnPeering, settings

app = cdk.App()
stack = cdk.Stack(app, "ExamplePeering")

vpc = ec2.Vpc(stack, "Vpc", ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/16"), max_azs=2, nat_gateways=1)
TrnPeering(
    stack,
    "Data",
    vpc=vpc,
    peer=settings.Peering(
        vpc_id=app.node.try_get_context("peer") or "vpc-0123456789abcdef0",
        cidr=("10.1.0.0/16",),
        account=app.node.try_get_context("account") or "444455556666",
        accepter_role=app.node.try_get_context("role") or "arn:aws:iam::444455556666:role/AcceptPeering",
    ),
)
app.synth()
