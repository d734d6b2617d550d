"""`TrnNodeRole`: permissions of the nodes themselves in AWS."""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.eks.access import ecr_repositories
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards, aws_policies
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.permissions import PULL_THROUGH, allow, session_manager_policy
from trainium_cdk.cdk.helpers.stack_wide import place_of
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.cdk.storage.given import grant_to_nodes


@jsii.implements(iam.IGrantable)
class TrnNodeRole(Checked):
    """The role of nodes: to join the cluster, to pull images, and Session Manager.

    It has no permissions for pods: they have their own roles (EKS Pod Identity), and cannot reach the instance's
    metadata.

    Example:
        role = TrnNodeRole(self, "NodeRole", storage=storage)
        TrnNodeGroup(self, "Trn", cluster=cluster, node_role=role.role)

    Args:
        storage: File systems that the nodes mount, as for `TrnNodeGroup`. Default: none.
        pull_through_caches: Addresses of ECR pull-through caches with their prefixes, for example
            111122223333.dkr.ecr.us-east-1.amazonaws.com/docker-hub: nodes may create repositories below them, as the first pull of an
            image does. Default: none.
    """

    role: iam.Role
    """The role, for any construct of the CDK."""

    def __init__(
        self, scope: Construct, id: str, *, storage: AnyStorage | None = None, pull_through_caches: Sequence[str] = ()
    ) -> None:
        super().__init__(scope, id)
        managed = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[
                *aws_policies(self, *managed),
                session_manager_policy(self),
            ],
        )
        if caches := ecr_repositories(place_of(self).partition, dict.fromkeys(pull_through_caches)):
            below = allow([f"{arn}/*" for arn in caches], *PULL_THROUGH, sid="PullThrough")
            self.role.add_to_policy(below)
            acknowledge_wildcards(self.role, [below])
        # the EFS driver mounts as the node
        if storage:
            grant_to_nodes(self, storage, self.role)

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role: `repository.grant_pull(node_role)`."""
        return self.role
