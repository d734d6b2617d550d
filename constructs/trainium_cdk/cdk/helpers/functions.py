"""Roles and log groups of Lambda functions: nothing is left behind, and no permission is more than needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from aws_cdk import ArnFormat, CfnResource, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.paths import below_stack, name_by
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.removal import removal_policy
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, place_of, stack_wide

_LOGS = "TrnDeployment"
_INTERFACES = "TrnFunctionInterfaces"
_INTERFACE_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
Resource = TypeVar("Resource", bound=CfnResource)


def l1(construct: IConstruct, kind: type[Resource]) -> Resource:
    """The main resource of a construct of the CDK (`node.default_child`, the CDK's own way to override properties), of that type."""
    resource = once(once(construct, "node"), "default_child")
    assert isinstance(resource, kind)  # noqa: S101  what the CDK's construct is made of
    return resource


def name_permission(rule: events.Rule) -> None:
    """Give the permission of a rule to call its function a logical id of ours: the CDK's has the function's whole path."""
    [permission] = [each for each in once(rule, "node").children if isinstance(each, functions.CfnPermission)]
    name_by(permission, below_stack(rule), "Permission")


def log_group(scope: Construct) -> logs.LogGroup:
    """A log group of the stack for a function: it is deleted with the stack. A year is what AWS's own controls ask for."""
    return logs.LogGroup(scope, "Logs", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy("delete"))


def deployment_logs(scope: Construct) -> logs.LogGroup:
    """The one log group of all functions that serve a stack's custom resources. Each log stream has its function's name."""
    of = stack_wide(scope, _LOGS, Construct, StackPart)
    group = once(of, "node").try_find_child("Logs")
    return group if isinstance(group, logs.LogGroup) else log_group(of)


def function_role(
    scope: Construct,
    group: logs.ILogGroup,
    statements: Sequence[iam.PolicyStatement] = (),
    *,
    in_vpc: bool = False,
) -> tuple[iam.Role, iam.ManagedPolicy]:
    """A role that lets a function write to its log group, and do what `statements` allow; and its policy, which can be granted more.

    Args:
        in_vpc: the function is in a VPC, so that Lambda needs permissions for its network interfaces.

    Without logs:CreateLogGroup: Lambda would create a deleted log group again with the last lines it writes.
    """
    write = allow(once(group, "log_group_arn"), "logs:CreateLogStream", "logs:PutLogEvents")
    policy = iam.ManagedPolicy(scope, "Policy", statements=[write, *statements])
    acknowledge_wildcards(policy, statements, scope)
    role = iam.Role(
        scope,
        "Role",
        assumed_by=_lambda(),
        managed_policies=[policy, *([interfaces_policy(scope)] if in_vpc else [])],
    )
    return role, policy


@cache
def _lambda() -> iam.ServicePrincipal:
    return iam.ServicePrincipal("lambda.amazonaws.com")


def interfaces_policy(scope: Construct) -> iam.ManagedPolicy:
    """The one policy for the network interfaces of all functions of a stack that are in a VPC.

    Lambda uses the function's role for them. AWS's managed policy gives the same permissions to the function's own code, which
    needs none of them: here it is refused them. Resources as in "Giving Lambda functions access to resources in an Amazon VPC" (AWS
    Lambda developer guide).
    """
    return stack_wide(scope, _INTERFACES, iam.ManagedPolicy, _interfaces_policy)


def _interfaces_policy(stack: Stack, id: str) -> iam.ManagedPolicy:
    code = stack.format_arn(
        service="lambda", resource="function", resource_name="*", arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
    # of any account: subnets may be another's, shared with this one
    allowed = allow(
        "*", *_INTERFACE_ACTIONS, conditions={"StringEquals": {"aws:RequestedRegion": place_of(stack).region}}
    )
    policy = iam.ManagedPolicy(
        stack,
        id,
        description="Network interfaces of the functions, for Lambda and not for their code",
        statements=[
            allowed,
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=list(_INTERFACE_ACTIONS),
                resources=["*"],
                conditions={"ArnLike": {"lambda:SourceFunctionArn": code}},
            ),
        ],
    )
    acknowledge_wildcards(policy, [allowed], stack)
    return policy
