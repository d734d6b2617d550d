"""What the rest of this package needs to know of an engine: the scheduler, and the AWS service that runs its nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import datetime as dt

    from trainium_cdk.catalog import InstanceType, Need, Stack
    from trainium_cdk.jobs import Backend
    from trainium_cdk.outputs import ClusterOutputs
    from trainium_cdk.settings import ComputeResource, Environment, NodeGroup, Queue
    from trainium_cdk.settings.base import Settings

Key = tuple[str | int, ...]
"""Path into the environment: `("eks", "node_groups", 0)`."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of one instance type, as the environment describes them.

    Attributes:
        at: key path of `resource`.
        queue_at: key path of `queue`.
        queue: what names the zone and the capacity type.
        resource: what names the instance type and the number of nodes; the same as `queue` where a queue has one type.
    """

    at: Key
    queue_at: Key
    queue: Queue | NodeGroup
    resource: ComputeResource | NodeGroup

    @property
    def name(self) -> str:
        """As users find it: `compute1/trn`, or the node group's name."""
        return self.queue.name if self.queue_at == self.at else f"{self.queue.name}/{self.resource.name}"


@dataclass(frozen=True)
class Server:
    """An ordinary machine beside the Trainium nodes: at most `count`, and `idle` while no job runs."""

    what: str
    instance_type: str
    count: int
    key: Key
    idle: int


@dataclass(frozen=True)
class Image:
    """A machine image that the environment names."""

    id: str
    root_volume_gib: int
    key: Key


class Engine(ABC):
    """One engine. A class of its own for each; everything optional has a default that suits an engine without AWS parts.

    Nothing in here imports the CDK: constructs and the app's stack classes are named, and imported by the app.
    """

    name: ClassVar[str]
    """In outputs (`TrnEngine`), options and messages of rules."""
    title: ClassVar[str]
    """In sentences."""
    section: ClassVar[str]
    """Its key of the environment."""
    stack: ClassVar[str]
    """Id of its stack in the app: `cdk deploy <stack>`."""
    stack_class: ClassVar[str]
    """Where the app finds the stack's class: `module:Class`."""
    cluster_resource: ClassVar[str] = ""
    """CloudFormation type of the cluster, by which a stack is known as one of this engine."""

    queue_noun: ClassVar[str] = "queue"
    """What the environment names zone and capacity type for."""
    nodes_noun: ClassVar[str] = "node group"
    """What the environment names an instance type for."""
    own_tag: ClassVar[str] = ""
    """Tag of the cluster's instances whose value is the name of the cluster."""
    services: ClassVar[frozenset[str]] = frozenset()
    """What of AWS runs the cluster: `parallelcluster`, `amazon-eks`. Preflight has checks for each."""
    shared_with_others: ClassVar[str] = ""
    """What stays after the stack is deleted, because all clusters of a region use it."""

    scales_itself: ClassVar[str] = ""
    """How the number of nodes is changed, where `trn scale` does not do it."""
    containers: ClassVar[bool] = False
    """Jobs run in container images."""
    queue_has_one_type: ClassVar[bool] = True
    """So an instance type without a queue may choose among all queues."""
    ordered_logs: ClassVar[bool] = True
    """The lines of several nodes come in one order, so that an offset can be continued from."""
    static_capacity_blocks: ClassVar[bool] = False
    """All nodes of a capacity block must be static."""
    deployment_waits_for_nodes: ClassVar[bool] = False
    """The deployment fails where EC2 has no capacity for the static nodes."""
    cluster_is_a_stack: ClassVar[bool] = False
    """CloudFormation has a second stack with the name of the cluster."""
    role_in_key_policy: ClassVar[str] = ""
    """Service-linked role that the policy of the stack's own KMS key names."""
    socket_interface: ClassVar[str] = ""
    """Network interface over which the collectives set up; empty for the default."""
    addresses_of_nodes: ClassVar[str] = "for interfaces that have one"
    """Why a node takes several addresses."""
    version_fix: ClassVar[str] = "Deploy with another bootstrap: {neuron_release: ...}"
    """What to do where the driver of a node and a job's runtime do not go together."""

    # The environment

    def settings(self) -> type[Settings] | None:
        """The model of its section, which has a default for every key; None where `Environment` itself has that field."""
        return None

    @abstractmethod
    def cluster_name(self, env: Environment) -> str: ...

    @abstractmethod
    def nodes(self, env: Environment) -> Iterator[Nodes]:
        """The Trainium nodes that the environment describes, in its order."""

    def zone_ids(self, env: Environment) -> tuple[str, ...]:
        """The availability zones of the cluster's network, the first one for nodes that name none."""
        return env.zones(self.nodes(env))

    def zone_of(self, env: Environment, queue: Queue | NodeGroup) -> str | None:
        """The one zone that the nodes of a queue or node group run in; None where there is none."""
        return queue.zone_id or next(iter(self.zone_ids(env)), None)

    def instance_types(self, env: Environment) -> tuple[str, ...]:
        """The Trainium types, each once, in order."""
        return tuple(dict.fromkeys(n.resource.instance_type for n in self.nodes(env)))

    @abstractmethod
    def need(self, env: Environment, families: tuple[str, ...]) -> Need:
        """What it requires of a Neuron release."""

    @abstractmethod
    def versions(self, env: Environment, release: str, families: tuple[str, ...]) -> Stack | None:
        """The versions that a job meets on its nodes; None where one of them is unknown."""

    # Its parts beside the Trainium nodes: what rules and preflight count

    def node_addresses(self, env: Environment, nodes: Nodes, kind: InstanceType, efa: bool) -> int:  # noqa: ARG002
        """IPv4 addresses of one node."""
        return 1

    def other_addresses(self, env: Environment, first: bool) -> dict[str, int]:  # noqa: ARG002
        """IPv4 addresses of everything else in a private subnet, by what has them; `first`: in the first zone."""
        return {}

    def public_addresses(self, env: Environment) -> dict[str, int]:  # noqa: ARG002
        """Elastic addresses beside those of the network."""
        return {}

    def servers(self, env: Environment) -> Iterator[Server]:  # noqa: ARG002
        return iter(())

    def volumes(self, env: Environment) -> dict[str, int]:  # noqa: ARG002
        """Volumes of its servers in GiB, by what they are."""
        return {}

    def control_plane(self, env: Environment, today: dt.date) -> dict[str, str]:  # noqa: ARG002
        """What is paid by the hour beside machines: what it is -> its name in the catalogue's prices."""
        return {}

    def idle_nodes(self, nodes: Nodes) -> int:
        """Trainium nodes that run while no job does."""
        return nodes.resource.min_nodes

    def service_roles(self, env: Environment) -> tuple[str, ...]:  # noqa: ARG002
        """Service-linked roles that it acts with, by their names in `checks.live.access`."""
        return ()

    def key_pair(self, env: Environment) -> str | None:  # noqa: ARG002
        """The EC2 key pair that the environment names."""
        return None

    def data_buckets(self, env: Environment) -> dict[Key, str]:  # noqa: ARG002
        """Buckets that jobs read, by their keys."""
        return {}

    def images(self, env: Environment) -> Sequence[Image]:  # noqa: ARG002
        return ()

    def public_parameters(self, env: Environment) -> Sequence[str]:  # noqa: ARG002
        """Public SSM parameters that the deployment reads."""
        return ()

    # What belongs to a deployed cluster

    def tags(self, cluster: str) -> dict[str, str]:  # noqa: ARG002
        """Tags of what was created for the cluster, each enough by itself."""
        return {}

    def log_groups(self, cluster: str) -> dict[str, str]:  # noqa: ARG002
        """Regular expressions of the cluster's own log groups -> what they are."""
        return {}

    # Jobs

    @abstractmethod
    def cluster(self, outputs: Mapping[str, str]) -> dict[str, Any]:
        """The fields of `cluster_model`, from a stack's outputs."""

    @abstractmethod
    def cluster_model(self) -> type[ClusterOutputs]: ...

    @abstractmethod
    def connect(
        self, cluster: ClusterOutputs, *, local: bool | None = None, say: Callable[[str], None] | None = None
    ) -> Backend[Any]:
        """The jobs of a deployed cluster. Arguments as of `jobs.connect`."""
