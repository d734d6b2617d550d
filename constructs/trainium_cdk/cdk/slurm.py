"""What the clusters of Slurm have in common, on ParallelCluster and on AWS PCS: a base class, and the role of their jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.storage import TrnStorage
from trainium_cdk.description.outputs import Exports
from trainium_cdk.description.settings import Environment


class OwnSlurmCluster(Checked):
    """Base class of `TrnPcluster` and `TrnPcsCluster`, so that others which take both need not import them."""

    WRITTEN_AS: ClassVar[Sequence[str]] = ("trainium_cdk.TrnPcluster", "trainium_cdk.TrnPcsCluster")
    """Its subclasses, which users write."""
    engine: ClassVar[Literal["slurm", "pcs"]]
    environment: Environment
    storage: TrnStorage

    @abstractmethod
    def exports(self, bucket: str, registry_uri: str) -> Exports:
        """Outputs by which `trn` finds the cluster."""


def job_role(scope: Construct, nodes: iam.IPrincipal, policies: Sequence[str]) -> iam.Role:
    """The role of jobs, which root's service on each node gives to its users (`bootstrap/lib/credentials.py`).

    It is for the roles of the cluster's nodes to assume. Each needs the permission, too.

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
