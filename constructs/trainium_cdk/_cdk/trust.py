"""Who may take a role."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct


def service_of_account(scope: Construct, service: str) -> iam.ServicePrincipal:
    """An AWS service, acting for a resource of the stack's own account and no other.

    For the services that say for whom they act: CodeBuild, EKS and VPC flow logs (each in its user guide, on the confused deputy).
    EC2 and Lambda, whose roles may be passed within the account alone, document no such condition.

    Args:
        service: its principal, as `codebuild.amazonaws.com`.
    """
    return iam.ServicePrincipal(service, conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}})
