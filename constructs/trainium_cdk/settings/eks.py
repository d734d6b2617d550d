"""The Kubernetes engine: Amazon EKS."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainium_cdk.catalog import Purchase
from trainium_cdk.settings.base import (
    AmiId,
    Arn,
    BucketName,
    Cidr,
    Days,
    InstanceTypeName,
    OnOff,
    ReservationId,
    Settings,
    ZoneId,
)
from trainium_cdk.settings.problems import wrong

PrincipalPattern = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/\S+$")]
DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
LabelKey = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", max_length=253)
]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$", max_length=63)]


def _not_everywhere(cidr: str) -> str:
    if cidr.endswith("/0"):
        raise wrong(
            "this opens the Kubernetes API to every address there is",
            "give your own network, as 203.0.113.0/24, or endpoint: private",
        )
    return cidr


RegistryPath = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*\.[a-z]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$", max_length=255)
]
ChartAddress = Annotated[
    str,
    StringConstraints(pattern=r"^oci://[a-z0-9][a-z0-9.-]*\.[a-z]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$", max_length=255),
]


class Access(Settings):
    """Who may use the cluster, beside whoever deployed it."""

    principal: Arn
    """IAM role or user."""
    policy: Literal["cluster-admin", "admin", "edit", "view"] = "edit"
    """EKS access policy: cluster-admin for all of the cluster, the others for the jobs' namespace."""


class JumpHost(Settings):
    """A small instance in the VPC through which a private endpoint is reached, by SSM alone: no open port, no key."""

    instance_type: InstanceTypeName = "t3.micro"
    """An ordinary type."""


class SystemNodes(Settings):
    """The small node group for what runs beside the training: DNS, controllers, TensorBoard."""

    instance_type: InstanceTypeName = "m5.large"
    """An ordinary x86_64 type."""
    min_nodes: int = Field(1, ge=1, le=100)
    """Fewest nodes."""
    nodes: int = Field(2, ge=1, le=100)
    """How many it starts with."""
    max_nodes: int = Field(4, ge=1, le=100)
    """Most nodes."""

    @model_validator(mode="after")
    def _counts(self) -> SystemNodes:
        if not self.min_nodes <= self.nodes <= self.max_nodes:
            raise wrong(
                f"min_nodes {self.min_nodes}, nodes {self.nodes} and max_nodes {self.max_nodes} are not in that order",
                "write min_nodes <= nodes <= max_nodes",
            )
        return self


class NodeGroup(Settings):
    """A managed node group of one Trainium type, all of it in one subnet, as EFA needs it."""

    name: Annotated[DnsLabel, StringConstraints(max_length=40)] = "trn"
    """Its name."""
    instance_type: InstanceTypeName = "trn1.32xlarge"
    """A Trainium type of the catalogue."""
    min_nodes: int = Field(0, ge=0, le=450)
    """Fewest nodes: always on, and always paid."""
    nodes: int = Field(0, ge=0, le=450)
    """How many it starts with; a later deploy does not undo a scaling."""
    max_nodes: int = Field(2, ge=1, le=450)
    """Most nodes."""
    purchase: Purchase = "on-demand"
    """How its nodes are bought."""
    reservation: ReservationId | None = None
    """Capacity reservation (ODCR), or the capacity block where `purchase` is capacity-block."""
    placement_group: OnOff = "auto"
    """`auto`: on with EFA, but off where capacity is reserved (together they fail for want of capacity)."""
    zone_id: ZoneId | None = None
    """The one zone its nodes run in. Default: the first zone that offers the type."""
    efa: OnOff = "auto"
    """`auto`: on where the instance type has EFA."""
    efa_layout: Literal["efa", "efa-only", "ena-and-efa-only"] = "efa-only"
    """Interfaces: `efa` on every card; `efa` on card 0 and `efa-only` (no address) on the others; or plain ENA on card 0
    beside `efa-only` on all."""
    root_volume_gib: int = Field(500, ge=40, le=16384)
    """Size of each node's root volume, GiB."""
    custom_ami: AmiId | None = None
    """An image of your own, derived from the EKS AL2023 Neuron image."""
    scratch: bool = True
    """The instance's NVMe disks as one RAID-0 volume for containers and scratch data."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Kubernetes labels of its nodes."""
    lnc: Literal[1, 2] | None = None
    """Physical NeuronCores of one logical NeuronCore. Default: the instance type's own, 2 on trn2."""
    user_data: Annotated[str, StringConstraints(pattern=r"^#!", max_length=12_000)] | None = None
    """A script of your own that each node runs as root when it starts, before it joins the cluster; its first line names the
    interpreter, as #!/bin/bash. Anyone who may look at launch templates reads it: no secrets."""

    @model_validator(mode="after")
    def _counts(self) -> NodeGroup:
        if not self.min_nodes <= self.nodes <= self.max_nodes:
            raise wrong(
                f"min_nodes {self.min_nodes}, nodes {self.nodes} and max_nodes {self.max_nodes} are not in that order",
                "write min_nodes <= nodes <= max_nodes",
            )
        return self


class Plugins(Settings):
    """What is installed in the cluster, beside the CNI, DNS and storage drivers."""

    neuron_scheduler: bool = False
    """Neuron's scheduler extension: contiguous devices for pods of your own that take a part of a node. Jobs of `trn submit` take
    whole nodes and do not use it."""
    node_problem_detector: bool = True
    """Watches the devices of every node."""
    node_monitoring: bool = True
    """EKS's node monitoring agent: reports failed devices, disks, networks and kernels as node conditions, on which EKS's own
    node repair acts. Without it node repair sees no failed device."""
    node_recovery: bool = False
    """Lets Neuron's detector replace a node whose devices failed; only without `node_monitoring`, as both would replace it."""
    volcano: bool = True
    """Gang scheduling; `trn submit` needs it."""
    autoscaler: bool = True
    """Nodes start when a gang waits for them, from zero, and stop when they are idle (see `eks.scaling`). It needs Volcano."""


class Scaling(Settings):
    """How long the autoscaler lets Trainium nodes wait, which is paid time."""

    idle_minutes: int = Field(10, ge=1, le=1440)
    """A node that has had no pods for so long is removed."""
    capacity_minutes: int = Field(10, ge=2, le=1440)
    """If AWS has not launched all instances of a job within this time, the job's other nodes are released."""
    start_minutes: int = Field(20, ge=5, le=1440)
    """If the pods of a job are not all placed within this time, its nodes are released."""
    retry_minutes: int = Field(30, ge=1, le=1440)
    """Pause before such a job is tried again. It doubles, up to eightfold, while attempts start nodes in vain."""


class Observability(Settings):
    """Logs of nodes and pods, and metrics, in CloudWatch (the add-on amazon-cloudwatch-observability). Both are charged by volume."""

    metrics: bool = True
    """Container Insights: metrics of nodes, pods and NeuronCores."""
    log_days: Days = 30
    """How long the logs are kept, days."""


class Mirror(Settings):
    """Where charts and images come from instead of their public registries: ECR repositories, pull-through caches or other
    registries of your own."""

    charts: dict[Literal["neuron", "efa", "volcano"], ChartAddress] = Field(default_factory=dict)
    """Charts in the versions of the catalogue, as neuron: oci://111122223333.dkr.ecr.us-east-1.amazonaws.com/neuron-helm-chart."""
    images: dict[RegistryPath, RegistryPath] = Field(default_factory=dict)
    """What stands in for the first part of image names, as docker.io: 111122223333.dkr.ecr.us-east-1.amazonaws.com/docker-hub."""

    def image(self, name: str) -> str:
        """The name under which an image is pulled."""
        found = [one for one in self.images if name == one or name.startswith(f"{one}/")]
        first = max(found, key=len, default=None)
        return name if first is None else self.images[first] + name.removeprefix(first)


class Eks(Settings):
    """A Kubernetes cluster on Amazon EKS."""

    version: Annotated[str, StringConstraints(pattern=r"^1\.\d{2}$")] | None = None
    """Kubernetes version. Default: the catalogue's."""
    support: Literal["standard", "extended"] | None = None
    """What EKS does when the version's standard support ends: `standard` upgrades the control plane to the next version, `extended`
    keeps it for another year at six times the price. Default: EKS's own, which is `extended`."""
    cluster_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)] | None = (
        None
    )
    """Default: the environment's name with `-eks`."""
    endpoint: Literal["private", "public"] = "private"
    """Where the Kubernetes API is reached: inside the VPC alone, or also from the networks of `public_cidrs`."""
    public_cidrs: tuple[Annotated[Cidr, AfterValidator(_not_everywhere)], ...] = ()
    """Networks that may reach a public endpoint; never 0.0.0.0/0."""
    jump_host: JumpHost | None = JumpHost()
    """How `trn` reaches a private endpoint from outside the VPC; null where you have a way of your own."""
    access: tuple[Access, ...] = ()
    """Who else may use the cluster."""
    users: tuple[PrincipalPattern, ...] = ()
    """ARNs of IAM roles and users, `*` for anything, that may take the role with which `trn` uses the cluster (its policy is `edit`).
    Default: whoever of the account may take roles, by the account's own policies."""
    system: SystemNodes = SystemNodes()
    node_groups: tuple[NodeGroup, ...] = Field((NodeGroup(),), min_length=1)
    """The Trainium nodes; jobs go to the first where none is named."""
    plugins: Plugins = Plugins()
    mirror: Mirror = Mirror()
    scaling: Scaling = Scaling()
    namespace: DnsLabel = "training"
    """Where jobs run."""
    service_cidr: Cidr | None = None
    """IPv4 network of the cluster's own services, which a cluster keeps for its life. Default: one that neither the VPC nor
    a peered network overlaps; name it where peerings may come later."""
    data_buckets: tuple[BucketName, ...] = ()
    """Buckets that jobs may read and write, beside the stack's own."""
    job_networks: tuple[Cidr, ...] = ()
    """Private networks whose every port jobs may connect to (a tracking server, a database). Jobs reach the internet, HTTPS
    anywhere and their own pods without; nothing else in the VPC."""
    ami_release: Annotated[str, StringConstraints(pattern=r"^\d{8}$")] | None = None
    """Release of the EKS Neuron node image by its date, as 20260625. Default: the newest whose Neuron driver goes with the training
    image, as far as the catalogue knows; else EKS's newest."""
    addon_versions: dict[str, Annotated[str, StringConstraints(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]] = Field(
        default_factory=dict
    )
    """Other versions than the catalogue's, by add-on name."""
    log_days: Days = 365
    """How long the cluster's logs are kept, days. They say who did what in the cluster (audit)."""
    observability: Observability | None = None
    """Logs and metrics in CloudWatch, which outlive the nodes. Default: none; what a node and its pods wrote goes with the node, but
    for the logs of jobs, which are on the shared file system."""

    @model_validator(mode="after")
    def _pairs(self) -> Eks:
        if self.endpoint == "public" and not self.public_cidrs:
            raise wrong("endpoint is public, but public_cidrs names no network", "add public_cidrs: [203.0.113.0/24]")
        if self.endpoint == "private" and self.public_cidrs:
            raise wrong("public_cidrs is given, but the endpoint is private", "write endpoint: public, or remove it")
        for group in self.node_groups:
            if "--==TRN==" in (group.user_data or ""):
                raise wrong(
                    f"user_data of {group.name} holds --==TRN==, which separates its parts", "write it otherwise"
                )
        names = [g.name for g in self.node_groups]
        if twice := next((n for n in names if names.count(n) > 1), None):
            raise wrong(f"node group {twice} is there {names.count(twice)} times", "give each a name of its own")
        return self
