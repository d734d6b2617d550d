"""The functions of a stack, and their place in its VPC."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as functions
from constructs import Construct

from trainium_cdk.cdk.helpers.functions import interfaces_policy, l1
from trainium_cdk.cdk.helpers.groups import ClosedGroup, https_out
from trainium_cdk.cdk.helpers.paths import path_of
from trainium_cdk.cdk.helpers.stack_wide import once, stack_of
from trainium_cdk.cdk.helpers.subnets import routes_of


def functions_of(stack: Stack) -> list[functions.Function]:
    """Every function of the CDK's in a stack, without nested stacks'."""
    found = once(stack, "node").find_all()
    own = path_of(stack)
    nested = [path for node in found if isinstance(node, Stack) and (path := path_of(node)) != own]
    return [
        node
        for node in found
        if isinstance(node, functions.Function) and not any(path_of(node).startswith(f"{path}/") for path in nested)
    ]


def place_functions(scope: Construct, vpc: ec2.IVpc) -> None:
    """Place each function of the stack that is in no VPC yet in the private subnets of `vpc`."""
    outside = [each for each in functions_of(stack_of(scope)) if not each.is_bound_to_vpc]
    group = ClosedGroup(
        scope,
        "Group",
        vpc_id=once(vpc, "vpc_id"),
        description="Functions of the deployment: HTTPS to AWS",
        egress=https_out("AWS"),
    )
    subnets = once(vpc, "private_subnets")
    inside = functions.CfnFunction.VpcConfigProperty(
        subnet_ids=[once(subnet, "subnet_id") for subnet in subnets],
        security_group_ids=[once(group.group, "security_group_id")],
    )
    interfaces = interfaces_policy(scope)
    for each in outside:
        if role := each.role:
            role.add_managed_policy(interfaces)
            function = l1(each, functions.CfnFunction)
            function.vpc_config = inside
            once(function, "node").add_dependency(*routes_of(subnets))
