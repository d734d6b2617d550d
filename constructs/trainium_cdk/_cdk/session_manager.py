"""Permissions of AWS Systems Manager's agent, for Session Manager and Run Command."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk._cdk.stack_wide import stack_wide

_POLICY = "TrnManagedInstance"


def session_manager_statements(scope: Construct) -> list[iam.PolicyStatement]:
    """Permissions of a managed instance: to register and to exchange messages with Systems Manager, in the stack's region.

    AWS's managed policy for this, AmazonSSMManagedInstanceCore, also allows `ssm:GetParameter` and `ssm:GetParameters` on every
    parameter of the account, private SSH keys included.
    """
    return [
        iam.PolicyStatement(
            sid="ManagedInstance",
            actions=[
                "ec2messages:AcknowledgeMessage",
                "ec2messages:DeleteMessage",
                "ec2messages:FailMessage",
                "ec2messages:GetEndpoint",
                "ec2messages:GetMessages",
                "ec2messages:SendReply",
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            resources=["*"],  # AWS accepts no narrower resource for the messages
            conditions={"StringEquals": {"aws:RequestedRegion": Stack.of(scope).region}},
        ),
    ]


def session_manager_policy(scope: Construct) -> iam.ManagedPolicy:
    """The one policy with these permissions for all roles of a stack."""

    def create(stack: Stack, id: str) -> iam.ManagedPolicy:
        what = "Session Manager and Run Command: the instance's side"
        return iam.ManagedPolicy(stack, id, description=what, statements=session_manager_statements(stack))

    return stack_wide(scope, _POLICY, iam.ManagedPolicy, create)
