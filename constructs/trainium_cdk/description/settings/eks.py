"""The Kubernetes engine: Amazon EKS."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from trainium_cdk.description.catalog import Catalog, Need
from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.description.settings.base import (
    AmiId,
    Arn,
    BucketName,
    Cidr,
    FromGibibytes,
    FromMinutes,
    FromVersion,
    InstanceTypeName,
    MaybeNumberToken,
    MaybeToken,
    Settings,
    refuse_duplicates,
    refuse_everywhere,
)
from trainium_cdk.description.settings.section import Nodes, NodeSettings, QueueSettings, Section
from trainium_cdk.problems import wrong
from trainium_cdk.text import Text

PrincipalPattern = Annotated[
    str,
    Text(
        r"^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/\S+$",
        "the ARN of an IAM role or user",
        "arn:aws:iam::111122223333:role/Trainer",
    ),
]
DnsLabel = Annotated[
    str,
    Text(
        r"^[a-z]([a-z0-9-]*[a-z0-9])?$",
        "small letters, digits and hyphens, with a letter as the first and a letter or digit as the last",
        "research",
        max_length=63,
    ),
]
# EKS takes less than Kubernetes: 63 characters with the prefix, and no empty value (EKS API reference, CreateNodegroup, 2026-11)
LabelKey = Annotated[
    str,
    Text(
        r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
        "the key of a label: letters, digits and . _ -, behind a domain and a slash if you like",
        "example.com/purpose",
        max_length=63,
    ),
    MaybeToken,
]
LabelValue = Annotated[
    str,
    Text(
        r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
        "the value of a label: letters, digits and . _ -, with a letter or digit as the first and the last",
        "research",
        max_length=63,
    ),
    MaybeToken,
]


_NOT_EVERYWHERE = partial(refuse_everywhere, opened="the Kubernetes API", fix="write endpoint: private")


RegistryPath = Annotated[
    str,
    Text(
        r"^[a-z0-9][a-z0-9.-]*\.[a-z]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$",
        "a registry, and a path in it if you like",
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror",
        max_length=255,
    ),
]
ChartAddress = Annotated[
    str,
    Text(
        r"^oci://[a-z0-9][a-z0-9.-]*\.[a-z]+(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$",
        "the address of a chart in a registry, which begins with oci://",
        "oci://111122223333.dkr.ecr.us-east-1.amazonaws.com/charts/neuron",
        max_length=255,
    ),
]


_AS_ONE_OR_SEVERAL = BeforeValidator(
    lambda given: (given,) if isinstance(given, str) else given,
    json_schema_input_type=DnsLabel | tuple[DnsLabel, ...],
)


class Access(Settings):
    """A principal that may use the cluster, in addition to the role that `trn` takes. One principal may have several."""

    principal: Arn
    """IAM role or user."""
    policy: Literal["cluster-admin", "admin", "edit", "view"] = "edit"
    """EKS access policy: cluster-admin for all of the cluster, the others for one namespace."""
    namespace: Annotated[tuple[DnsLabel, ...], _AS_ONE_OR_SEVERAL, Field(min_length=1)] | None = None
    """Namespace of a team (see `eks.queues`), or a list of several. Default: the jobs' namespace."""


class TeamQueue(Settings):
    """A team's namespace, with a share of the Trainium nodes. What the teams leave is the share of `eks.namespace`."""

    namespace: DnsLabel
    """Its namespace, which the stack creates. Jobs in it name a queue by the node group, as everywhere."""
    nodes: dict[str, Annotated[int, Field(ge=0, le=450)]] = Field(default_factory=dict)
    """Number of nodes by node group, for example trn: 4, that the team's first waiting job gets: jobs of others that have borrowed them
    are stopped, and wait again. A later small job waits behind a larger one of its team, also where one of these nodes is idle, unless its
    priority is higher. Default: none."""
    max_nodes: dict[str, Annotated[int, Field(ge=0, le=450)]] = Field(default_factory=dict)
    """Maximum number of nodes by node group, including those that others do not use at the time. Default: all of the
    group."""


def _fits(script: str) -> str:
    """A script, unless its letters that are no ASCII make it too long: EC2 counts the bytes of user data, 16 KiB with the stack's part."""
    if "--==TRN==" in script:
        raise wrong("it contains --==TRN==, which is reserved as a separator", "remove --==TRN== from it")
    if (size := len(script.encode())) > 12_000:
        raise wrong(
            f"it has {size:,} bytes in UTF-8, and EC2 accepts 12,000 in addition to the stack's own user data",
            "shorten it, or let it fetch the rest from S3",
        )
    return script


class BastionHost(Settings):
    """A bastion host: a small instance in the VPC that gives access to a private endpoint, by SSM only. No open port,
    no key."""

    instance_type: InstanceTypeName = "t3.micro"
    """An ordinary type."""


_Group = TypeVar("_Group", bound="SystemNodes | NodeGroup")


def _check_sizes(group: _Group) -> _Group:
    if not group.min_nodes <= group.nodes <= group.max_nodes:
        raise wrong(
            f"min_nodes {group.min_nodes}, nodes {group.nodes} and max_nodes {group.max_nodes} are not in that order",
            "write min_nodes <= nodes <= max_nodes",
        )
    return group


class SystemNodes(Settings):
    """The small node group for everything except training: DNS, controllers, downloads of jobs, TensorBoard."""

    instance_type: InstanceTypeName = "r5.large"
    """An ordinary x86_64 type. Its memory must hold the largest download of a job (see `eks.prepare_memory_gib`)."""
    min_nodes: int = Field(default=1, ge=1, le=100)
    """Minimum number of nodes."""
    nodes: int = Field(default=2, ge=1, le=100)
    """Number of nodes after the first deployment."""
    max_nodes: int = Field(default=4, ge=1, le=100)
    """Maximum number of nodes."""
    root_volume_gib: Annotated[int, Field(ge=20, le=16384), MaybeNumberToken, FromGibibytes] = 80
    """Size of each node's root volume, GiB."""

    _counts = model_validator(mode="after")(_check_sizes)


class NodeGroup(QueueSettings, NodeSettings):
    """A managed node group of one Trainium type, all of it in one subnet, as EFA needs it."""

    name: Annotated[DnsLabel, StringConstraints(max_length=40)] = "trn"
    """Name of the node group."""
    min_nodes: int = Field(default=0, ge=0, le=450)
    """Minimum number of nodes. They always run and are always charged."""
    nodes: int = Field(default_factory=lambda values: values.get("min_nodes", 0), ge=0, le=450)
    """Number of nodes after the first deployment. A later deployment keeps the size that scaling has set. Default: `min_nodes`."""
    max_nodes: int = Field(default=2, ge=1, le=450)
    """Maximum number of nodes."""
    efa_layout: Literal["efa", "efa-only", "ena-and-efa-only"] = "efa-only"
    """Network interfaces: `efa` on every card; `efa-only` (without an address) on every card but 0, which has `efa`; or plain ENA on card 0
    and `efa-only` on all cards."""
    custom_ami: AmiId | None = None
    """Your own image, derived from the EKS AL2023 Neuron image."""
    local_storage: bool = True
    """Combine the instance's NVMe disks into one RAID-0 volume for containers and scratch data."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Kubernetes labels of its nodes."""
    lnc: Literal[1, 2] | None = None
    """Number of physical NeuronCores in one logical NeuronCore. Default: the instance type's, for example 2 on trn2."""
    devices: Literal["plugin", "claims"] | None = None
    """How pods get its Neuron devices. It cannot change while nodes run: add a group, and remove this one. Default: `eks.plugins.devices`."""
    share: bool = False
    """Jobs take parts of its nodes (`trn submit --devices`), and none takes a whole one. Only with devices: claims."""
    user_data: (
        Annotated[
            str,
            Text(r"^#!", "a script whose first line names its interpreter", "#!/bin/bash", max_length=12_000),
            AfterValidator(_fits),
            MaybeToken,
        ]
        | None
    ) = None
    """A script that each node runs as root when it starts, before it joins the cluster. Its first line names the interpreter, for example
    #!/bin/bash. Anyone with permission to read launch templates can read it: put no secrets in it."""

    @property
    def idle_nodes(self) -> int:
        return self.nodes

    _counts = model_validator(mode="after")(_check_sizes)


class Plugins(Settings):
    """What is installed in the cluster in addition to the CNI, DNS and storage drivers."""

    devices: Literal["plugin", "claims"] = "plugin"
    """How pods get Neuron devices. plugin: they request a number from Neuron's device plug-in. claims: they claim them from Neuron's DRA
    driver. A job can then take a part of a node, and choose its own LNC. It needs Kubernetes 1.34; parts of nodes need 1.36."""
    neuron_scheduler: bool = False
    """Neuron's scheduler extension. It gives contiguous devices to your own pods that use a part of a node. Jobs of `trn submit` use whole
    nodes and do not need it."""
    node_problem_detector: bool = True
    """Monitor the devices of every node."""
    node_monitoring: bool = True
    """EKS's node monitoring agent. It reports failed devices, disks, networks and kernels as node conditions, on which EKS's node repair
    acts. Without it, node repair does not notice a failed device."""
    node_recovery: bool = False
    """Let Neuron's detector replace a node whose devices failed. Only without `node_monitoring`, because both would
    replace it."""
    volcano: bool = False
    """The scheduler Volcano, with a queue for each node group, for jobs of TorchX (`examples/torchx_component.py`). Jobs of
    `trn submit` do not need it."""
    autoscaler: bool = True
    """Start nodes, from zero, for the jobs in the queues, and stop idle nodes (see `eks.scaling`). Without it, jobs start on nodes that
    run already: `min_nodes`, or `aws eks update-nodegroup-config`."""


class Scaling(Settings):
    """How Trainium nodes are started for jobs, and how long they may wait. Waiting nodes are charged."""

    idle_minutes: Annotated[int, Field(ge=1, le=1440), FromMinutes] = 10
    """A node without pods is removed after this time."""
    capacity_minutes: Annotated[int, Field(ge=2, le=1440), FromMinutes] = 10
    """If AWS has not launched all instances of a job within this time, others have their turn."""
    start_minutes: Annotated[int, Field(ge=5, le=1440), FromMinutes] = 20
    """If the nodes of a job cannot all be used within this time, others have their turn."""
    retry_minutes: Annotated[int, Field(ge=1, le=1440), FromMinutes] = 30
    """Time before nodes are started again for such a job. It doubles after each failed attempt, up to eightfold."""
    reserve: bool = True
    """Reserve all on-demand instances of a job in one request before any is started, so that AWS never starts and charges
    a part of them. A reservation is charged like its instances; it is cancelled when they run, usually after a minute. Not
    used for spot, reservations and capacity blocks, or where EC2 refuses it."""


class ContainerInsights(Settings):
    """Logs of nodes and pods, and metrics, in CloudWatch (the add-on amazon-cloudwatch-observability). AWS charges both
    by volume."""

    metrics: bool = True
    """Container Insights: metrics of nodes, pods and NeuronCores."""


class Mirror(Settings):
    """Your own sources of charts and images, used instead of the public registries: ECR repositories, pull-through caches or other
    registries. In ECR, nodes and the function that installs charts may create the repositories of what they pull, as the first pull through
    a cache does; a cache needs a prefix. That first pull needs a way to the internet from the subnet that it comes from."""

    charts: dict[Literal["neuron", "efa", "jobset", "kueue", "volcano"], ChartAddress] = Field(default_factory=dict)
    """Charts in the catalogue's versions, for example neuron:
    oci://111122223333.dkr.ecr.us-east-1.amazonaws.com/neuron-helm-chart."""
    images: dict[RegistryPath, RegistryPath] = Field(default_factory=dict)
    """Replacements for the first part of image names, for example docker.io:
    111122223333.dkr.ecr.us-east-1.amazonaws.com/docker-hub."""

    def image(self, name: str) -> str:
        """The name under which an image is pulled."""
        prefixes = [p for p in self.images if name == p or name.startswith(f"{p}/")]
        first = max(prefixes, key=len, default=None)
        return name if first is None else self.images[first] + name.removeprefix(first)


class ControlPlane(Settings):
    """A control plane: its version, its name, and who reaches it."""

    version: Annotated[str, Text(r"^1\.[0-9]{2}$", "a version of Kubernetes", "1.36"), FromVersion] | None = None
    """Kubernetes version. Default: the catalogue's."""
    support: Literal["standard", "extended"] | None = None
    """What EKS does when the version's standard support ends. `standard` upgrades the control plane to the next version. `extended` keeps
    the version for another year at six times the price. Default: EKS's own default, `extended`."""
    cluster_name: (
        Annotated[
            str,
            Text(
                r"^[A-Za-z0-9][A-Za-z0-9_-]*$",
                "letters, digits, _ and hyphens, with a letter or digit as the first",
                "my-cluster",
                max_length=100,
            ),
        ]
        | None
    ) = None
    """Default: the environment's name with `-eks`; of a construct, from its path."""
    endpoint: Literal["private", "public"] = "private"
    """From where the Kubernetes API can be reached: from inside the VPC only, or also from the networks in
    `public_cidrs`."""
    public_cidrs: tuple[Annotated[Cidr, AfterValidator(_NOT_EVERYWHERE), MaybeToken], ...] = Field(
        default=(), max_length=40
    )
    """Networks that may connect to a public endpoint; never 0.0.0.0/0. EKS accepts 40."""
    namespace: DnsLabel = "training"
    """Where jobs run."""
    service_cidr: Annotated[Cidr, MaybeToken] | None = None
    """IPv4 network of the cluster's services. It cannot be changed later. Default: a network that overlaps neither the VPC nor a peered
    network. Set it if peerings may be added later."""

    @model_validator(mode="after")
    def _open_or_closed(self) -> Self:
        if self.endpoint == "public" and not self.public_cidrs:
            raise wrong("endpoint is public, but public_cidrs is empty", "add public_cidrs: [203.0.113.0/24]")
        if self.endpoint == "private" and self.public_cidrs:
            raise wrong(
                "public_cidrs is given, but the endpoint is private", "write endpoint: public, or remove public_cidrs"
            )
        return self


class Eks(ControlPlane, Section):
    """A Kubernetes cluster on Amazon EKS."""

    bastion_host: BastionHost | None = BastionHost.model_construct()
    """The bastion host through which `trn` connects to a private endpoint from outside the VPC. null if you have
    another way."""
    access: tuple[Access, ...] = ()
    """Other principals that may use the cluster."""
    users: tuple[PrincipalPattern, ...] = ()
    """ARNs of the IAM roles and users that may assume the role with which `trn` uses the cluster (its policy is `edit`). `*` matches
    anything. Default: every principal of the account whose own policies allow it to assume roles."""
    system: SystemNodes = SystemNodes.model_construct()
    prepare_memory_gib: int | None = Field(default=None, ge=1, le=200)
    """Memory of a pod that fetches data, packages or models on a system node (`prepare` of a job), and the most of one that
    reads files there, GiB. A pod that needs more is killed. Default: 4, 8 for jobs that build packages, 10 for jobs that download models from
    Hugging Face; 2 for readers."""
    node_groups: tuple[NodeGroup, ...] = Field(default=(NodeGroup(),), min_length=1)
    """The Trainium nodes; jobs without a named one use the first."""
    queues: tuple[TeamQueue, ...] = ()
    """Shares of the nodes for teams, each with its own namespace. Default: everyone uses `namespace`, and all nodes
    are for it."""
    plugins: Plugins = Plugins.model_construct()
    mirror: Mirror = Mirror.model_construct()
    scaling: Scaling = Scaling.model_construct()
    data_buckets: tuple[BucketName, ...] = Field(default=(), max_length=100)
    """Buckets that jobs may read and write, in addition to the stack's own bucket."""
    job_networks: tuple[Cidr, ...] = ()
    """Private networks to which jobs may connect on every port, for example of a tracking server or a database. Without an entry, jobs can
    reach the internet, HTTPS anywhere and the pods of the same job, and nothing else in the VPC."""
    ami_release: (
        Annotated[str, Text(r"^[0-9]{8}$", "the date of a release of EKS's node image: 8 digits", "20260415")] | None
    ) = None
    """Release date of the EKS Neuron node image, for example 20260625. Default: the newest known image whose Neuron driver is compatible
    with the training image. If there is none: the newest known image, on which each node installs the Neuron release's own driver when it
    starts, before it joins the cluster."""
    addon_versions: dict[
        str,
        Annotated[
            str,
            Text(r"^v[0-9]+\.[0-9]+\.[0-9]+-eksbuild\.[0-9]+$", "the version of an EKS add-on", "v1.11.3-eksbuild.1"),
        ],
    ] = Field(default_factory=dict)
    """Add-on versions that replace the catalogue's, by add-on name."""
    observability: ContainerInsights | None = None
    """Logs and metrics in CloudWatch, which are kept after the nodes are deleted. Default: none. The logs of a node and its pods are then
    deleted with the node, except the logs of jobs, which are on the shared file system."""

    @model_validator(mode="after")
    def _groups_differ(self) -> Eks:
        refuse_duplicates([g.name for g in self.node_groups], "node group")
        return self

    @property
    def has_own_images(self) -> bool:
        """True if every node group has an image of the user's own, with a driver that is not known."""
        return all(group.custom_ami for group in self.node_groups)

    def claims(self, group: NodeGroup) -> bool:
        """Whether pods claim the devices of a node group."""
        return (group.devices or self.plugins.devices) == "claims"

    def nodes(self) -> Iterator[Nodes]:
        for i, group in enumerate(self.node_groups):
            yield Nodes(("eks", "node_groups", i), ("eks", "node_groups", i), group, group)

    def need(self, catalog: Catalog, families: tuple[str, ...]) -> Need:
        return Need("eks", families, version=self.kubernetes(catalog), custom_ami=self.has_own_images)

    def kubernetes(self, catalog: Catalog) -> str:
        """The version of Kubernetes. A rule rejects one that is too old to be created: all else is as for the default version."""
        known = catalog.eks.versions
        if self.version in known or (self.version and numbers(self.version) > max(map(numbers, known))):
            return self.version
        return catalog.eks.default
