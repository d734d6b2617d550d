"""Lambda functions, including the CDK's own, that leave no log groups behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk import CfnResource, CustomResourceProviderBase, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from trainium_cdk._cdk.removal import removal_policy

LOG_DAYS = 365
"""Days for which logs of functions and builds are kept: AWS's controls require a year."""
Statement = dict[str, Any]


def own_logs(
    scope: Construct,
    function: CfnResource,
    role: CfnResource,
    *,
    also: Sequence[Statement] = (),
    managed: Sequence[str] = (),
) -> logs.CfnLogGroup:
    """Give a function a log group of the stack, and its role no permission to create another: Lambda would create a deleted
    log group again with the last lines that it writes.

    The role's managed policies are removed, as they allow that; policies attached to it elsewhere are kept.

    Args:
        also: additional policy statements of the role.
        managed: names of AWS managed policies that replace the removed ones.
    """
    group = logs.CfnLogGroup(scope, "Logs", retention_in_days=LOG_DAYS)
    group.apply_removal_policy(removal_policy("delete"))
    function.add_property_override("LoggingConfig", {"LogGroup": group.ref})
    write = allow(Stack.of(scope).resolve(group.attr_arn), "logs:CreateLogStream", "logs:PutLogEvents")
    policy = {"Version": "2012-10-17", "Statement": [write, *also]}
    partition = Stack.of(scope).partition
    role.add_property_override("ManagedPolicyArns", [f"arn:{partition}:iam::aws:policy/{name}" for name in managed])
    role.add_property_override("Policies", [{"PolicyName": "Own", "PolicyDocument": policy}])
    return group


def l1(construct: IConstruct) -> CfnResource:
    """The main resource of a construct of the CDK (`node.default_child`, the CDK's own way to override properties)."""
    resource = construct.node.default_child
    assert isinstance(resource, CfnResource)  # noqa: S101  true for functions and roles
    return resource


def providers(stack: Stack) -> list[tuple[CustomResourceProviderBase, CfnResource, CfnResource]]:
    """The functions that the CDK creates once per stack for its custom resources: provider, function and role."""
    found = []
    for node in stack.node.children:
        if isinstance(node, CustomResourceProviderBase):
            parts = {part.cfn_resource_type: part for part in node.node.children if isinstance(part, CfnResource)}
            found.append((node, parts["AWS::Lambda::Function"], parts["AWS::IAM::Role"]))
    return found


def log_group(scope: Construct) -> logs.LogGroup:
    """A log group of the stack for a function: it is deleted with the stack."""
    return logs.LogGroup(scope, "Logs", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy("delete"))


def function_role(
    scope: Construct,
    group: logs.ILogGroup,
    statements: Sequence[iam.PolicyStatement] = (),
    managed: Sequence[str] = (),
) -> iam.Role:
    """A role that lets a function write to its own log group, and do what `statements` allow.

    Without logs:CreateLogGroup: Lambda would create a deleted log group again with the last lines it writes.
    """
    write = iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])
    return iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={"Own": iam.PolicyDocument(statements=[write, *statements])},
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in managed],
    )


def inline_function(
    scope: Construct, *, code: Path, description: str, statements: Sequence[iam.PolicyStatement] = ()
) -> functions.Function:
    """A function of one Python file that serves a custom resource, with a role and a log group of its own.

    Args:
        code: the file; at most 4096 characters, with the entry point `handler`.
        statements: permissions of the role in addition to writing the log. Default: none; more can be granted to `function.role`.
    """
    group = log_group(scope)
    role = function_role(scope, group)
    for statement in statements:
        role.add_to_policy(statement)
    return functions.Function(
        scope,
        "Function",
        description=description,
        code=functions.Code.from_inline(code.read_text("utf-8")),
        handler="index.handler",
        runtime=functions.Runtime.PYTHON_3_14,
        timeout=Duration.minutes(2),
        role=role,
        log_group=group,
    )


def allow(resource: Any, *actions: str) -> Statement:
    """A policy statement in CloudFormation's format."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


IN_A_VPC = "service-role/AWSLambdaENIManagementAccess"
"""AWS's own policy for the network interfaces of a function in a VPC, for which Lambda accepts no narrower resource. It does not
allow creating log groups."""
