"""The section of one engine in an environment, and the Trainium nodes that it describes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from trainium_cdk.description.catalog import CapacityType, Catalog, Need
from trainium_cdk.description.settings.base import FromWord, InstanceTypeName, OnOff, RootGib, Settings, ZoneId
from trainium_cdk.description.settings.reserved import PlacementGroup, Reservation
from trainium_cdk.problems import KeyPath


class QueueSettings(Settings):
    """Zone and capacity type of nodes: a queue or a node group."""

    name: str
    capacity_type: Annotated[CapacityType, FromWord] = "on-demand"
    """Capacity type of its nodes."""
    placement_group: PlacementGroup = "auto"
    """`auto`: a new group with EFA, but none for reserved capacity, which is outside a new group. Or the name of an existing cluster
    placement group, as for a reservation that was made in one."""
    zone_id: ZoneId | None = None
    """The one zone its nodes run in. Default: the first zone of the network."""
    root_volume_gib: RootGib = 500
    """Size of each node's root volume, GiB."""

    @property
    def existing_group(self) -> str | None:
        """Name or id of the existing placement group; None if there is none."""
        return None if self.placement_group in ("auto", "on", "off") else self.placement_group

    def placement(self, *, efa: bool, reservation: str | None) -> str | bool:
        """The existing placement group of nodes, or whether they are in a new one.

        By themselves, nodes with EFA are, but not with reserved capacity: the reserved instances are outside a new group, and
        the launch fails with InsufficientInstanceCapacity (eksctl issue 7949).
        """
        if self.placement_group == "auto":
            return efa and reservation is None and self.capacity_type != "capacity-block"
        return self.existing_group or self.placement_group == "on"


class NodeSettings(Settings):
    """Instance type and number of nodes: a compute resource or a node group."""

    name: str
    instance_type: InstanceTypeName = "trn1.32xlarge"
    """A Trainium type of the catalogue."""
    min_nodes: int = Field(default=0, ge=0)
    """Minimum number of nodes. They always run and are always charged."""
    max_nodes: int = Field(default=1, ge=1)
    """Maximum number of nodes."""
    efa: OnOff = "auto"
    """`auto`: on if the instance type has EFA."""
    reservation: Reservation | None = None
    """Capacity reservation (ODCR), or the capacity block if `capacity_type` is capacity-block: its id. Or the ARN of a resource group of
    several reservations; beyond these, nodes then start on demand."""

    @property
    def idle_nodes(self) -> int:
        """Nodes that run while no job does."""
        return self.min_nodes


@dataclass(frozen=True)
class Nodes:
    """Nodes of one instance type, as the environment describes them.

    Attributes:
        at: key path of `resource`.
        queue_at: key path of `queue`.
        queue: queue or node group, with the zone and the capacity type.
        resource: compute resource, with the instance type and the number of nodes; the same as `queue` where a queue has one type.
    """

    at: KeyPath
    queue_at: KeyPath
    queue: QueueSettings
    resource: NodeSettings

    @property
    def name(self) -> str:
        """Name for users: `compute1/trn`, or the node group's name."""
        return self.queue.name if self.queue_at == self.at else f"{self.queue.name}/{self.resource.name}"


class Section(Settings):
    """Section of an environment for one engine. Every key has a default."""

    @abstractmethod
    def nodes(self) -> Iterator[Nodes]:
        """The Trainium nodes, in the order of the environment."""

    @abstractmethod
    def need(self, catalog: Catalog, families: tuple[str, ...]) -> Need:
        """Return its nodes' requirements for a Neuron release."""
