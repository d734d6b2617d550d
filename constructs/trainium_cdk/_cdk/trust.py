"""Principals that may assume a role."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


def service_of_account(scope: Construct, service: str) -> iam.ServicePrincipal:
    """An AWS service, acting for a resource of the stack's own account and no other.

    For services that report the resource for which they act: CodeBuild, EKS and VPC flow logs (see "confused deputy" in their user
    guides). EC2 and Lambda, whose roles can only be passed within the account, document no such condition.

    Args:
        service: its principal, for example `codebuild.amazonaws.com`.
    """
    return iam.ServicePrincipal(service, conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}})
