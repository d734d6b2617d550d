"""The functions of a stack, and their place in its VPC."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from constructs import Construct

from trainium_cdk.cdk.helpers.functions import interfaces_policy, l1
from trainium_cdk.cdk.helpers.groups import ClosedGroup, https_out


def functions_of(stack: Stack) -> list[tuple[functions.CfnFunction, iam.IRole]]:
    """Every function of a stack that has a role of the CDK's, without nested stacks'."""
    at = stack.node.path
    return [
        (l1(node, functions.CfnFunction), node.role)
        for node in stack.node.find_all()
        if isinstance(node, functions.Function) and node.role is not None and Stack.of(node).node.path == at
    ]


def place_functions(scope: Construct, vpc: ec2.IVpc) -> None:
    """Place each function of the stack that is in no VPC yet in the private subnets of `vpc`."""
    outside = [(function, role) for function, role in functions_of(Stack.of(scope)) if not function.vpc_config]
    group = ClosedGroup(
        scope,
        "Group",
        vpc_id=vpc.vpc_id,
        description="Functions of the deployment: HTTPS to AWS",
        egress=https_out("AWS"),
    )
    inside = functions.CfnFunction.VpcConfigProperty(
        subnet_ids=[s.subnet_id for s in vpc.private_subnets],
        security_group_ids=[group.group.security_group_id],
    )
    interfaces = interfaces_policy(scope)
    for function, role in outside:
        role.add_managed_policy(interfaces)
        function.vpc_config = inside
        function.node.add_dependency(*(s.internet_connectivity_established for s in vpc.private_subnets))
