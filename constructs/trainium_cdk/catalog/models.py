"""The shape of each fact. Frozen; unknown keys are refused, so a misspelt override is an error and not a silence."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Purchase = Literal["on-demand", "spot", "capacity-block"]
Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)+$")]
ZoneId = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,5}\d+-az\d+$")]
HttpsUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s'\"]+$")]


class Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Nvme(Fact):
    """Local NVMe instance storage."""

    count: int = Field(ge=0, description="number of disks")
    size_gb: int = Field(ge=0, description="size of one disk, GB")


class InstanceType(Fact):
    """One EC2 instance type with Trainium devices."""

    name: str = ""
    family: Annotated[str, StringConstraints(pattern=r"^trn\d\w*$")] = Field(description="as trn1, trn1n, trn2")
    vcpus: int = Field(gt=0)
    memory_gib: int = Field(gt=0, description="host memory, GiB")
    neuron_devices: int = Field(gt=0, description="Trainium chips")
    cores_per_device: int = Field(gt=0, description="physical NeuronCores of one device")
    hbm_gib: int = Field(gt=0, description="device memory of all devices, GiB")
    network_cards: int = Field(gt=0)
    network_gbps: float = Field(gt=0, description="peak of all cards together, Gbit/s")
    efa_interfaces: int = Field(ge=0, description="0 = no EFA")
    nvme: Nvme = Nvme(count=0, size_gb=0)
    purchase: tuple[Purchase, ...] = ("on-demand",)
    lnc: tuple[int, ...] = Field((1,), description="logical NeuronCore sizes it can run; the last one is the default")
    max_pods: int | None = Field(None, description="pods the VPC CNI can address; None = not known")
    zone_ids: tuple[ZoneId, ...] = Field((), description="availability zone ids that offer it")

    @model_validator(mode="after")
    def _no_more_efa_than_cards(self) -> InstanceType:
        if self.efa_interfaces > self.network_cards:
            raise ValueError(
                f"efa_interfaces is {self.efa_interfaces}, but there are {self.network_cards} network cards: one a card"
            )
        return self

    @property
    def default_lnc(self) -> int:
        return self.lnc[-1]

    @property
    def physical_cores(self) -> int:
        """Physical NeuronCores of the instance."""
        return self.neuron_devices * self.cores_per_device

    def logical_cores(self, lnc: int | None = None) -> int:
        """NeuronCores a framework sees: one worker process each.

        Raises:
            ValueError: the type cannot run that logical NeuronCore size.
        """
        size = self.default_lnc if lnc is None else lnc
        if size not in self.lnc:
            raise ValueError(f"{self.name} runs LNC {' or '.join(map(str, self.lnc))}, not {size}")
        return self.physical_cores // size


class Framework(Fact):
    """A training framework wheel of one Neuron release."""

    package: str
    version: Version
    families: tuple[str, ...] = Field(description="instance families it trains on")
    requires: tuple[str, ...] = Field((), description="packages that pip is to install with it, as nki==0.7.0")
    beta: bool = False


class NeuronRelease(Fact):
    """One Neuron SDK release and the package versions that belong together."""

    version: Version = "0.0"
    released: dt.date
    dkms: Version
    collectives: Version
    runtime: Version
    tools: Version
    compiler: Version
    frameworks: dict[Literal["torch-xla", "torch-native"], Framework] = {}
    container: str | None = Field(None, description="training image, fully pinned")


class Repositories(Fact):
    """Where Neuron and EFA packages come from; override with a mirror's addresses."""

    apt: HttpsUrl
    yum: HttpsUrl
    pip: HttpsUrl
    key: HttpsUrl
    efa: HttpsUrl


class OperatingSystem(Fact):
    """A ParallelCluster image family."""

    user: str
    python: str
    framework_wheels: bool = Field(description="whether the PyTorch wheels of Neuron run on its C library")
    kernel: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
    packages: tuple[str, ...] = Field((), description="of the system's own repositories")


class ParallelClusterLimits(Fact):
    """The largest counts, and the longest names in characters, that ParallelCluster takes."""

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
    operating_systems: dict[str, OperatingSystem]
    limits: ParallelClusterLimits
    provider_template: str
    regions: tuple[str, ...] = Field(description="regions its release lists as supported")
    root_volume_gib: int = Field(description="root volume of the official images, GiB: no node's can be smaller")
    reserved_mount_dirs: tuple[str, ...]
    reserved_tag_prefixes: tuple[str, ...]
    top_level_keys: tuple[str, ...] = Field(description="sections of a cluster configuration")
    denied_slurm_settings: tuple[str, ...] = Field(description="slurm.conf parameters it sets itself, lower case")
    denied_slurm_settings_with_accounting: tuple[str, ...]
    endpoints: tuple[str, ...] = Field(description="AWS services that its nodes call, but for S3")
    endpoints_with_accounting: tuple[str, ...]
    endpoints_with_login_nodes: tuple[str, ...]


class ThroughputPoint(Fact):
    """One published measurement on trn1.32xlarge."""

    model: str
    nodes: int
    sequences_per_second: float
    phase: int | None = None
    optimizer: str | None = None
    scaling: Literal["strong", "weak"] | None = None
    global_batch_size: int
    precision: str
    tensor_parallel: int | None = None
    sdk: str
    """Major and minor version of the Neuron SDK that it was measured with."""
