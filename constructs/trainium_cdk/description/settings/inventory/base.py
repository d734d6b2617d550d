"""Inventory of one engine's cluster, as an environment describes it."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from trainium_cdk.description.catalog import InstanceType, Stack
from trainium_cdk.description.engines import Engine
from trainium_cdk.description.settings.environment import Environment
from trainium_cdk.description.settings.section import Nodes, QueueSettings
from trainium_cdk.problems import KeyPath

MetricsSource = Literal["nodes", "container-insights"]


@dataclass(frozen=True)
class KnownNodes(Nodes):
    """Nodes whose instance type is in the catalogue.

    Attributes:
        engine: whose nodes they are.
        kind: the instance type, as the catalogue describes it.
    """

    engine: Engine
    kind: InstanceType

    @property
    def efa(self) -> bool:
        """True if its nodes have EFA interfaces."""
        return self.kind.efa_of(self.resource.efa) > 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """Equal machines of a cluster, or another service that it uses. Quotas, addresses and cost are sums over parts.

    Attributes:
        name: of one: `head node`, `compute1/trn`.
        key: the setting that names its type.
        count: how many there are while no job runs.
        most: how many there are at most.
        instance_type: empty for a service.
        detail: description of a service, for its line in the cost.
        price: the hourly price of a service, by its name in the catalogue's service prices; empty if it costs nothing.
        addresses: private IPv4 addresses of each.
        address_use: why each has several addresses.
        public_addresses: Elastic IP addresses of each.
        volume_gib: root volume of each in GiB, charged apart from the machine; 0 if it is not counted.
        zones: the zones of the cluster in which it may be: its one `zone`, the first one, or each with all of them.
        zone: id of the one zone of Trainium nodes; None where there is none.
        nodes: description of Trainium nodes; None for other parts.
    """

    name: str
    key: KeyPath = ()
    count: int = 1
    most: int = 1
    instance_type: str = ""
    detail: str = ""
    price: str = ""
    addresses: int = 0
    address_use: str = ""
    public_addresses: int = 0
    volume_gib: int = 0
    zones: Literal["one", "first", "every"] = "first"
    zone: str | None = None
    nodes: KnownNodes | None = None

    @property
    def plural(self) -> str:
        """All of it, in a sentence: `the head node`, `system nodes`."""
        return f"the {self.name}" if self.most == 1 else f"{self.name}s"


@dataclass(frozen=True)
class MachineImage:
    """A machine image that the environment names."""

    id: str
    root_volume_gib: int
    key: KeyPath


class Inventory(ABC):
    """The cluster of one engine. Each engine has its own class."""

    instance_tag: ClassVar[str] = ""
    """Tag of the cluster's instances whose value is the name of the cluster."""
    address_use: ClassVar[str] = ""
    """Why a Trainium node has several addresses."""
    takes_groups_of_blocks: ClassVar[bool] = True
    """Whether nodes can start in a resource group of capacity blocks."""
    deployment_waits_for_nodes: ClassVar[bool] = False
    """The deployment fails where EC2 has no capacity for the static nodes."""

    def __init__(self, engine: Engine, env: Environment, today: dt.date):
        self.engine, self.env, self.today = engine, env, today

    @property
    def node_metrics(self) -> MetricsSource | None:
        """Source of its nodes' device metrics in CloudWatch: the nodes themselves, Container Insights, or none."""
        return None

    @property
    def counts_jobs(self) -> bool:
        """True if the numbers of its jobs and nodes are sent to CloudWatch each minute."""
        return self.node_metrics == "nodes"

    @property
    @abstractmethod
    def cluster(self) -> str:
        """Name of the cluster."""

    @abstractmethod
    def versions(self, release: str, families: tuple[str, ...]) -> Stack | None:
        """The versions that a job meets on nodes of these families; None where one of them is unknown."""

    @cached_property
    def nodes(self) -> tuple[Nodes, ...]:
        """The Trainium nodes, in the order of the environment."""
        return tuple(self.env.sections[self.engine.name].nodes())

    @cached_property
    def known_nodes(self) -> tuple[KnownNodes, ...]:
        """Nodes whose instance type is known. A separate rule refuses the others."""
        known = self.env.catalog.instances
        return tuple(
            KnownNodes(n.at, n.queue_at, n.queue, n.resource, self.engine, kind)
            for n in self.nodes
            if (kind := known.get(n.resource.instance_type))
        )

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The Trainium types, each once, in order."""
        return tuple(dict.fromkeys(n.resource.instance_type for n in self.nodes))

    @cached_property
    def zone_ids(self) -> tuple[str, ...]:
        """The availability zones of the network, the first one for nodes that name none.

        Those of the existing subnets, else those set for the network, else those that the nodes name, else the first zone that
        offers all of their instance types. Empty if there is none, which a check then reports.
        """
        network, catalog = self.env.network, self.env.catalog
        if network.existing:
            return tuple(dict.fromkeys(s.zone_id for s in network.existing.private_subnets))
        if network.zone_ids:
            return network.zone_ids
        if requested := tuple(dict.fromkeys(n.queue.zone_id for n in self.nodes if n.queue.zone_id)):
            return requested
        # an instance type without known zones may be offered anywhere: it does not narrow the choice
        kinds = {n.kind.name for n in self.known_nodes if n.kind.zone_ids}
        offered = [set(catalog.zone_ids(kind, self.env.region)) for kind in kinds]
        return tuple(sorted(set.intersection(*offered))[:1] if offered else [])

    def zone_of(self, queue: QueueSettings) -> str | None:
        """The one zone that the nodes of a queue or node group run in; None where there is none."""
        return queue.zone_id or next(iter(self.zone_ids), None)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Everything that the cluster consists of, its Trainium nodes first."""
        return (*self._training(), *self.others())

    def others(self) -> Iterator[Part]:
        """List the parts other than the Trainium nodes."""
        return iter(())

    def node_addresses(self, nodes: KnownNodes) -> int:  # noqa: ARG002
        """Private IPv4 addresses of one Trainium node."""
        return 1

    def _training(self) -> Iterator[Part]:
        for nodes in self.known_nodes:
            yield Part(
                name=nodes.name,
                key=nodes.at,
                count=nodes.resource.idle_nodes,
                most=nodes.resource.max_nodes,
                instance_type=nodes.kind.name,
                addresses=self.node_addresses(nodes),
                address_use=self.address_use,
                volume_gib=nodes.queue.root_volume_gib,
                zones="one",
                zone=self.zone_of(nodes.queue),
                nodes=nodes,
            )

    # What it needs of the account, beside its parts

    def linked_roles(self) -> tuple[str, ...]:
        """Service-linked roles that it acts with, by their names in `checks.live.account`."""
        return ()

    def alarm_topics(self) -> Mapping[KeyPath, str]:
        """ARNs of the SNS topics that the stack's alarms, and messages about jobs, are sent to, by their keys."""
        seen = self.env.observability if self.counts_jobs else None
        topics = {"alarm_topic": seen.alarm_topic, "job_topic": seen.job_topic} if seen else {}
        return {("observability", name): topic for name, topic in topics.items() if topic}

    def volume_roles(self) -> tuple[str, ...]:
        """Service-linked roles that start its nodes, which a customer key of volumes must allow; by their names in `checks.live.account`."""
        return ()

    def volume_keys(self) -> tuple[str, ...] | None:
        """Keys of volumes that roles of the stack may use; None where none of them starts nodes."""
        return None

    def data_buckets(self) -> Mapping[KeyPath, str]:
        """Buckets that jobs read, by their keys."""
        return {}

    def principals(self) -> Mapping[KeyPath, str]:
        """ARNs of the roles and users that the cluster gives access, by their keys; patterns of several are left out."""
        return {}

    def images(self) -> Sequence[MachineImage]:
        """Machine images that the environment names."""
        return ()

    def public_parameters(self) -> Sequence[str]:
        """Public SSM parameters that the deployment reads."""
        return ()

    def own_stacks(self) -> Sequence[str]:
        """Names of stacks that the cluster has in CloudFormation in addition to the app's."""
        return ()
