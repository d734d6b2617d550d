"""The role of jobs on a Slurm cluster, which root's service on each node gives to its users (`bootstrap/lib/credentials.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct


def job_role(scope: Construct, nodes: iam.IPrincipal, policies: Sequence[str]) -> iam.Role:
    """A role for the roles of the cluster's nodes to assume. Each needs the permission, too.

    Args:
        policies: ARNs of policies, for example to read a bucket of data.
    """
    role = iam.Role(scope, "JobRole", assumed_by=nodes, description="What jobs may do (trainium-cdk)")
    add_policies(role, policies)
    return role


def add_policies(role: iam.Role, policies: Sequence[str]) -> None:
    """Give a role policies that exist, by their ARNs."""
    for i, arn in enumerate(policies):
        role.add_managed_policy(iam.ManagedPolicy.from_managed_policy_arn(role, f"Policy{i}", arn))
