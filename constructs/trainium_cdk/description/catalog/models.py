"""The shape of each catalogue entry. Frozen; unknown keys are rejected, so that a misspelt override is reported."""

import datetime as dt
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.text import Text

CapacityType = Literal["on-demand", "spot", "capacity-block"]
Version = Annotated[str, Text(r"^\d+(\.\d+)+$", "a version: numbers with dots between them", "2.33.0")]
PythonVersion = Annotated[str, Text(r"^3\.\d+$", "a version of Python", "3.12")]
FrameworkName = Literal["torch-xla", "torch-native", "jax"]
"""PyTorch/XLA, and its successor TorchNeuron: both are the package torch-neuronx. JAX, with the package jax-neuronx."""
TITLES: dict[str, str] = {"torch-xla": "PyTorch/XLA", "torch-native": "TorchNeuron", "jax": "JAX"}
"""The frameworks' names in sentences."""
PcsSizeName = Literal["small", "medium", "large"]
HttpsUrl = Annotated[
    str,
    Text(
        r"^https?://[A-Za-z0-9._~:/?#@!&+,;=%-]+$",
        "an address that begins with https:// or http://",
        "https://mirror.example.com/simple",
    ),
]
"""URL that the nodes' settings take, too (bootstrap/lib/settings.sh)."""
ZoneId = Annotated[str, Text(r"^[a-z]{2,5}\d+-az\d+$", "the ID of a zone, not its name", "use1-az6")]


class Fact(BaseModel):
    """The base class of catalogue entries."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def numbers(version: str) -> tuple[int, ...]:
    """The parts of a version as numbers, for comparing versions."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def within(version: str, first: str, before: str) -> bool:
    """Return whether a version is `first` or later, and before `before`. An empty end is open."""
    at = numbers(version)
    return (not first or at >= numbers(first)) and (not before or at < numbers(before))


class Nvme(Fact):
    """Local NVMe instance storage."""

    count: int = Field(ge=0, description="number of disks")
    size_gb: int = Field(ge=0, description="size of one disk, GB")


class InstanceType(Fact):
    """One EC2 instance type with Trainium devices."""

    name: str = ""
    family: Annotated[str, Text(r"^trn[0-9][a-z0-9]*$", "a family of instance types", "trn2")] = Field(
        description="for example trn1, trn1n, trn2"
    )
    vcpus: int = Field(gt=0)
    memory_gib: int = Field(gt=0, description="host memory, GiB")
    neuron_devices: int = Field(gt=0, description="Trainium chips")
    cores_per_device: int = Field(gt=0, description="physical NeuronCores of one device")
    hbm_gib: int = Field(gt=0, description="device memory of all devices, GiB")
    network_cards: int = Field(gt=0)
    network_gbps: float = Field(gt=0, description="peak of all cards together, Gbit/s")
    efa_interfaces: int = Field(ge=0, description="0 = no EFA")
    nvme: Nvme = Nvme(count=0, size_gb=0)
    capacity_types: tuple[CapacityType, ...] = ("on-demand",)
    lnc: tuple[int, ...] = Field(
        default=(1,), description="logical NeuronCore sizes it can run; the last one is the default"
    )
    max_pods: int | None = Field(default=None, description="pods the VPC CNI can address; None = not known")
    ultraserver: int | None = Field(default=None, gt=1, description="instances of one UltraServer; None = in none")
    zone_ids: tuple[ZoneId, ...] = Field(default=(), description="availability zone ids that offer it")

    @model_validator(mode="after")
    def _no_more_efa_than_cards(self) -> "InstanceType":
        if self.efa_interfaces > self.network_cards:
            raise ValueError(
                f"efa_interfaces is {self.efa_interfaces}, but each of the {self.network_cards} network cards has at most one"
            )
        return self

    def efa_of(self, setting: str) -> int:
        """EFA interfaces that a node uses; 0 for none.

        Args:
            setting: `efa` of a fleet: auto, on or off.
        """
        return 0 if setting == "off" else self.efa_interfaces

    @property
    def default_lnc(self) -> int:
        return self.lnc[-1]

    @property
    def physical_cores(self) -> int:
        """Physical NeuronCores of the instance."""
        return self.neuron_devices * self.cores_per_device

    def logical_cores(self, lnc: int | None = None) -> int:
        """Logical NeuronCores, as a framework sees them. Each gets one worker process.

        Raises:
            ValueError: the instance type does not support that logical NeuronCore size.
        """
        size = self.default_lnc if lnc is None else lnc
        if size not in self.lnc:
            raise ValueError(f"{self.name} supports LNC {' or '.join(map(str, self.lnc))}, not {size}")
        return self.physical_cores // size


class Framework(Fact):
    """A training framework wheel of one Neuron release."""

    package: str
    version: Version
    families: tuple[str, ...] = Field(description="instance families it trains on")
    pythons: tuple[PythonVersion, ...] = Field(
        default=(), description="Python versions it has wheels for; empty = not known"
    )
    glibc: Version | None = Field(default=None, description="oldest C library it runs on")
    systems: tuple[str, ...] = Field(
        default=(), description="operating systems it is supported on; empty = any that it runs on"
    )
    requires: tuple[str, ...] = Field(
        default=(), description="packages that pip installs with it, for example nki==0.7.0"
    )
    beta: bool = False
    image_example: str | None = Field(
        default=None, description="example from which `trn image build` makes a training image with it"
    )


class NeuronRelease(Fact):
    """One Neuron SDK release and the package versions that belong together."""

    version: Version = "0.0"
    released: dt.date
    dkms: Version
    collectives: Version
    runtime: Version
    tools: Version
    compiler: Version
    families: tuple[str, ...] = Field(default=(), description="instance families of its driver; empty = not known")
    libraries: dict[str, Version] = Field(
        default={}, description="training libraries by package, for example neuronx_distributed"
    )
    frameworks: dict[FrameworkName, Framework] = Field(default={})
    container: str | None = Field(default=None, description="training image, fully pinned")
    only_named: bool = Field(
        default=False, description="never chosen or proposed: used only if the environment names it"
    )


class TrainingImage(Fact):
    """Contents of a published training image."""

    framework: FrameworkName
    python: PythonVersion
    runtime: Version
    collectives: Version


class Range(Fact):
    """A range of versions. An end that is not set is open."""

    first: Version | None = Field(default=None, alias="from")
    before: Version | None = None

    def __contains__(self, version: str) -> bool:
        return within(version, self.first or "", self.before or "")


class Statement(Fact):
    """A quotation from AWS, with its source and date."""

    text: str
    source: str
    date: dt.date
    supported: bool = True

    def __str__(self) -> str:
        return f'"{self.text}" (AWS, {self.source}, {self.date})'


class Incompatible(Statement):
    """Versions of the driver and the runtime that are not compatible."""

    driver: Range
    runtime: Range


class Notice(Statement):
    """A statement of AWS about a framework in some releases."""

    framework: FrameworkName
    releases: Range


class Recommendation(Fact):
    """AWS's recommendation for training on some instance types: the defaults of their nodes."""

    only: tuple[str, ...] = Field(alias="for", min_length=1, description="instance families, or single types")
    framework: FrameworkName
    release: Version = Field(description="Neuron SDK release")
    os: str = Field(description="operating system of Slurm nodes")
    kinds: dict[str, str] = Field(
        description="kinds of jobs that run there, the first choice first, with the options of an example"
    )
    source: str
    date: dt.date

    def example(self, kind: str) -> str:
        """The command that submits a job of a recommended kind; COMMIT stands for a commit that the user chooses.

        Raises:
            KeyError: the kind is not recommended.
        """
        words = ["trn submit", "" if kind == "script" else kind, self.kinds[kind]]
        return " ".join(filter(None, words))


class Repositories(Fact):
    """Addresses of the packages of Neuron, EFA and the CloudWatch agent. Override them to use a mirror."""

    apt: HttpsUrl
    yum: HttpsUrl
    pip: HttpsUrl
    key: HttpsUrl
    efa: HttpsUrl
    agent: HttpsUrl


class Package(Fact):
    """A package that is downloaded by its version, and must be the very file."""

    version: Annotated[str, Text(r"^[0-9][0-9A-Za-z.+~_-]*$", "the version of a package", "3.16.1")]
    sha256: Annotated[
        str,
        Text(
            r"^[0-9a-f]{64}$",
            "a SHA-256 of 64 digits and small letters a to f",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ),
    ]


class OperatingSystem(Fact):
    """A ParallelCluster image family."""

    user: str
    pythons: tuple[PythonVersion, ...] = Field(
        min_length=1, description="Python versions in its own repositories, the preferred one first"
    )
    glibc: Version
    kernel: Annotated[
        str, Text(r"^\d+\.\d+$", "the version of a Linux kernel: two numbers with a dot between them", "6.8")
    ]
    packages: tuple[str, ...] = Field(default=(), description="packages from the system's own repositories")


class ParallelClusterRelease(Fact):
    """One version of ParallelCluster."""

    released: dt.date
    slurm: Version | None = Field(default=None, description="None = not known")
    root_volume_gib: int = Field(
        gt=0, description="root volume of the official images, GiB: the minimum for every node"
    )


class Advisory(Statement):
    """A statement in ParallelCluster's own repository about some of its releases."""

    releases: Range
    feature: Literal["login_nodes", "static_nodes", ""] = Field(
        default="",
        description="what has the problem: a key of `pcluster`, or nodes that always run; empty = every cluster",
    )
    level: Literal["warning", "error"] = Field(
        default="warning", description="error = such a cluster cannot be deployed"
    )
    fix: str = Field(default="", description="what to do; empty = use another release")


class ParallelClusterLimits(Fact):
    """The largest counts, and the longest names in characters, that ParallelCluster accepts."""

    cluster_name: int
    cluster_name_with_accounting: int
    queue_name: int
    queues: int
    compute_resources: int
    tags: int


class ParallelClusterFacts(Fact):
    source: str
    date: dt.date
    default: Version
    oldest: Version
    releases: dict[str, ParallelClusterRelease]
    advisories: tuple[Advisory, ...]
    many_queues: int = Field(
        description="from this number of queues on, updates may exceed ParallelCluster's time limits"
    )
    operating_systems: dict[str, OperatingSystem]
    limits: ParallelClusterLimits
    provider_template: str
    regions: tuple[str, ...] = Field(description="regions that its release lists as supported")
    reserved_mount_dirs: tuple[str, ...]
    reserved_tag_prefixes: tuple[str, ...]
    attachable_policies: tuple[str, ...] = Field(
        description="AWS's policies that the provider's role may attach to nodes, in addition to the account's named parallelcluster*"
    )
    denied_slurm_settings: tuple[str, ...] = Field(description="slurm.conf parameters that it sets itself, lower case")
    denied_slurm_settings_with_accounting: tuple[str, ...]
    denied_slurm_settings_of_queue: tuple[str, ...]
    denied_slurm_settings_of_resource: tuple[str, ...]
    endpoints: tuple[str, ...] = Field(description="AWS services that its nodes call, except S3")
    endpoints_with_accounting: tuple[str, ...]
    endpoints_with_login_nodes: tuple[str, ...]

    def root_volume_gib(self, version: str | None = None) -> int:
        """Size of the official images' root volume, GiB. For an unknown version, the newest known one's."""
        known = self.releases.get(version or self.default)
        return (known or self.releases[max(self.releases, key=numbers)]).root_volume_gib


class TorchTitanPreset(Fact):
    """Values of the options of the job kind `torchtitan`, under a name. See there for what each one means."""

    title: str = ""
    module: str
    config: str
    model: str | None = None
    initial_weights: bool = False
    dataset: str | None = None
    chat: bool = False
    tensor_parallel: int = Field(default=1, ge=1)
    steps: int | None = Field(default=None, ge=1)

    @property
    def options(self) -> dict[str, Any]:
        """The options that it sets, by name."""
        return {name: value for name, value in self if name in self.model_fields_set - {"title"}}


class CollectivePoint(Fact):
    """One published bandwidth of an all-reduce of 1 GiB of fp32 over all NeuronCores of some nodes, by nccom-test."""

    instance_type: str
    nodes: int = Field(ge=1)
    bus_gb_per_second: float = Field(gt=0)
    source: str
    date: dt.date


class PcsSize(Fact):
    nodes: int
    jobs: int


class PcsLimits(Fact):
    """The largest counts, and the longest name of a queue or node group in characters."""

    clusters: int
    compute_node_groups: int
    queues: int
    name: int


class PcsFacts(Fact):
    source: str
    date: dt.date
    default: str = Field(description="version of Slurm")
    versions: tuple[str, ...] = Field(description="versions of Slurm that a new cluster may have")
    sizes: dict[PcsSizeName, PcsSize]
    limits: PcsLimits
    images: dict[str, str] = Field(description="SSM parameter of AWS's own image, by operating system")
    root_devices: dict[str, str]
    slurm_bin: str = Field(description="folder of Slurm's commands on a node")
    cluster_settings: tuple[str, ...] = Field(description="slurm.conf parameters that can be set for a cluster")
    setting_values: dict[str, tuple[str, ...]] = Field(description="the only values that PCS lets a parameter have")
    options_since: dict[str, dict[str, str]] = Field(
        description="options in the value of a parameter, with the first Slurm release that has them"
    )
    endpoints: tuple[str, ...] = Field(description="AWS services that its nodes call, except S3")


class Helper(Fact):
    """A pod that `trn` starts on a system node. It may use more CPU than it requests, and memory up to `limit`."""

    cpu: int
    memory: int
    limit: int


class Prepare(Fact):
    """The pod that fetches what a job needs. What it requests of memory is its limit, too."""

    cpu: int
    memory: dict[Fetches, int]
    source: str

    def helper(self, fetches: Fetches, gib: int | None = None) -> Helper:
        """Its size.

        Args:
            gib: of memory, instead of the default.
        """
        memory = gib * 1024 if gib else self.memory[fetches]
        return Helper(cpu=self.cpu, memory=memory, limit=memory)


class Helpers(Fact):
    """The pods that `trn` starts."""

    prepare: Prepare
    tensorboard: Helper
    reader: Helper
