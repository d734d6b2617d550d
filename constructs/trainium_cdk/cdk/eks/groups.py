"""Trainium node groups as arguments of constructs: a `TrnNodeGroup`, or one that exists already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aws_cdk import ArnFormat, Stack
from constructs import Construct

from trainium_cdk.cdk.eks.view import AnyCluster, view_of
from trainium_cdk.cdk.storage import AnyStorage
from trainium_cdk.description.outputs import Fleet


class INodeGroup(Protocol):
    """A Trainium node group, as other constructs use it."""

    @property
    def nodegroup_name(self) -> str:
        """Its name in EKS."""

    @property
    def nodegroup_arn(self) -> str:
        """Its ARN."""

    @property
    def fleet(self) -> Fleet:
        """The description of the nodes for jobs."""

    @property
    def storage(self) -> AnyStorage | None:
        """The file systems that its nodes can mount."""


def refuse_duplicates(construct: Construct, node_groups: Sequence[INodeGroup]) -> None:
    """Raises ValueError for groups of one name: jobs and queues select nodes by it."""
    names = [group.fleet.resource for group in node_groups]
    if duplicate := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(
            f"{construct.node.path}: node_groups: {names.count(duplicate)} are named {duplicate}, and queues and jobs select nodes by "
            "the name: give each its own name"
        )


@dataclass(frozen=True)
class ExistingNodeGroup:
    """A node group that this library did not create."""

    cluster: AnyCluster
    nodegroup_name: str
    fleet: Fleet
    storage: AnyStorage | None

    @property
    def nodegroup_arn(self) -> str:
        """Its ARN. EKS ends each with its own id."""
        return Stack.of(self.cluster).format_arn(
            service="eks",
            resource="nodegroup",
            resource_name=f"{view_of(self.cluster).name}/{self.nodegroup_name}/*",
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
