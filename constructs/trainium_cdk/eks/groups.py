"""Trainium node groups as arguments of constructs: a `TrnNodeGroup`, or one that exists already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aws_cdk import ArnFormat, Stack

from trainium_cdk.catalog import Catalog
from trainium_cdk.eks.view import AnyCluster, view_of
from trainium_cdk.outputs import Fleet
from trainium_cdk.outputs.eks import group_fleet
from trainium_cdk.storage import AnyStorage


class NodeGroup(Protocol):
    """What other constructs use of a Trainium node group."""

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


@dataclass(frozen=True)
class ExistingNodeGroup:
    """A node group that this library did not create."""

    nodegroup_name: str
    nodegroup_arn: str
    fleet: Fleet
    storage: AnyStorage | None


def existing_node_group(
    *,
    cluster: AnyCluster,
    nodegroup_name: str,
    instance_type: str,
    max_size: int,
    name: str,
    efa: bool | None,
    lnc: int | None,
    storage: AnyStorage | None,
    catalog: Catalog | None,
) -> NodeGroup:
    """Arguments as of `TrnNodeGroup.from_nodegroup_attributes`."""
    view, kind = view_of(cluster), (catalog or Catalog.load()).instance(instance_type)
    arn = Stack.of(cluster).format_arn(
        service="eks",
        resource="nodegroup",
        # EKS ends each with an id of its own
        resource_name=f"{view.name}/{nodegroup_name}/*",
        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
    )
    fleet = group_fleet(kind, name=name, nodes=max_size, efa="auto" if efa is None else "on" if efa else "off", lnc=lnc)
    return ExistingNodeGroup(nodegroup_name, arn, fleet, storage)
