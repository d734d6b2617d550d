"""Functions that the CDK makes for itself, made to leave nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnResource, Stack
from aws_cdk import aws_logs as logs
from constructs import Construct

from trainium_cdk.removal import removal_policy

LOG_DAYS = 30
Statement = dict[str, Any]


def own_logs(
    scope: Construct, function: CfnResource, role: CfnResource, *, also: Sequence[Statement] = ()
) -> logs.CfnLogGroup:
    """Give a function a log group of the stack, and its role no right to make another: Lambda would bring a log group that
    has been deleted back to life with the last lines it writes.

    The role's managed policies are taken away, as they allow just that; policies attached to it elsewhere stay.

    Args:
        also: what else the role may do, as policy statements.
    """
    group = logs.CfnLogGroup(scope, "Logs", retention_in_days=LOG_DAYS)
    group.apply_removal_policy(removal_policy("delete"))
    function.add_property_override("LoggingConfig", {"LogGroup": group.ref})
    write = allow(Stack.of(scope).resolve(group.attr_arn), "logs:CreateLogStream", "logs:PutLogEvents")
    policy = {"Version": "2012-10-17", "Statement": [write, *also]}
    role.add_property_override("ManagedPolicyArns", [])
    role.add_property_override("Policies", [{"PolicyName": "Own", "PolicyDocument": policy}])
    return group


def allow(resource: Any, *actions: str) -> Statement:
    """A policy statement, as CloudFormation reads it."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


IN_A_VPC = allow(
    "*",  # EC2 takes no narrower resource for these, and Lambda asks for all of them
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:UnassignPrivateIpAddresses",
)
"""What the role of a function in a VPC must allow."""
