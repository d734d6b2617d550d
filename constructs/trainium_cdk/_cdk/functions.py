"""Lambda functions, including the CDK's own, that leave no log groups behind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk import ArnFormat, CfnResource, CustomResourceProviderBase, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from constructs import Construct, IConstruct

from trainium_cdk._cdk.removal import removal_policy
from trainium_cdk._cdk.stack_wide import stack_wide

OWN = "Own"
"""The id of the policy that `own_logs` makes."""
_LOGS = "TrnDeployment"
_INTERFACES = "TrnFunctionInterfaces"
_INTERFACE_CHANGES = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:UnassignPrivateIpAddresses",
)
_INTERFACE_READS = ("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets")
_PUBLIC_REGISTRY = "us-east-1"
Statement = dict[str, Any]


def own_logs(scope: Construct, function: CfnResource, role: CfnResource) -> None:
    """Give a function the log group of the stack's functions, and its role no permission to create another: Lambda would create a
    deleted log group again with the last lines that it writes.

    The role's own policies are removed, as they allow that; policies attached to it elsewhere are kept. Once for each function.
    """
    group = deployment_logs(scope)
    function.add_property_override("LoggingConfig", {"LogGroup": group.log_group_name})
    write = allow(group.log_group_arn, "logs:CreateLogStream", "logs:PutLogEvents")
    policy = iam.CfnManagedPolicy(
        scope,
        OWN,
        policy_document={"Version": "2012-10-17", "Statement": [write]},
        roles=[role.ref],
    )
    function.add_resource_dependency(policy)
    role.add_property_override("ManagedPolicyArns", [])
    role.add_property_deletion_override("Policies")


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
            if "AWS::IAM::Role" in parts:  # not with iam.Role.customize_roles
                found.append((node, parts["AWS::Lambda::Function"], parts["AWS::IAM::Role"]))
    return found


def log_group(scope: Construct) -> logs.LogGroup:
    """A log group of the stack for a function: it is deleted with the stack. A year is what AWS's own controls ask for."""
    return logs.LogGroup(scope, "Logs", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy("delete"))


def deployment_logs(scope: Construct) -> logs.LogGroup:
    """The one log group of all functions that serve a stack's custom resources. Each log stream has its function's name."""
    of = stack_wide(scope, _LOGS, Construct, Construct)
    group = of.node.try_find_child("Logs")
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
    write = iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])
    policy = iam.ManagedPolicy(scope, "Policy", statements=[write, *statements])
    role = iam.Role(
        scope,
        "Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        managed_policies=[policy, *([interfaces_policy(scope)] if in_vpc else [])],
    )
    return role, policy


def inline_function(
    scope: Construct, *, code: Path, description: str, statements: Sequence[iam.PolicyStatement] = ()
) -> tuple[functions.Function, iam.ManagedPolicy]:
    """A function of one Python file that serves a custom resource, with a role of its own; and the role's policy.

    Args:
        code: the file; at most 4096 characters, with the entry point `handler`.
        statements: permissions of the role in addition to writing the log. Default: none; more can be granted to the policy.
    """
    group = deployment_logs(scope)
    role, policy = function_role(scope, group, statements)
    function = functions.Function(
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
    return function, policy


def allow(resource: Any, *actions: str) -> Statement:
    """A policy statement in CloudFormation's format."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def public_registry() -> list[Statement]:
    """Logging in to AWS's public registry, which limits anonymous pulls. It issues its tokens in one region only."""
    return [
        {
            **allow("*", "ecr-public:GetAuthorizationToken"),
            "Condition": {"StringEquals": {"aws:RequestedRegion": _PUBLIC_REGISTRY}},
        },
        # without a condition: conditions on the service's name were seen to reject the registry's own requests
        allow("*", "sts:GetServiceBearerToken"),
    ]


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
    here = stack.format_arn(service="ec2", resource="*", resource_name="*", account="*")
    return iam.ManagedPolicy(
        stack,
        id,
        description="Network interfaces of the functions, for Lambda and not for their code",
        statements=[
            iam.PolicyStatement(actions=list(_INTERFACE_CHANGES), resources=[here]),
            iam.PolicyStatement(actions=list(_INTERFACE_READS), resources=["*"]),  # which take no narrower resource
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=[*_INTERFACE_CHANGES, *_INTERFACE_READS],
                resources=["*"],
                conditions={"ArnLike": {"lambda:SourceFunctionArn": code}},
            ),
        ],
    )
