"""The shape of the facts about Amazon EKS."""

import datetime as dt
from collections.abc import Container, Iterable
from typing import Annotated, Literal

from pydantic import Field

from trainium_cdk.description.catalog.models import Fact, Version, ZoneId
from trainium_cdk.text import Text


class KubernetesVersion(Fact):
    """Until when EKS supports one Kubernetes version."""

    standard_support_until: dt.date
    extended_support_until: dt.date


class Addon(Fact):
    """One EKS add-on, pinned by Kubernetes version."""

    versions: dict[
        str,
        Annotated[str, Text(r"^v\d+\.\d+\.\d+-eksbuild\.\d+$", "the version of an EKS add-on", "v1.11.3-eksbuild.1")],
    ]
    """Add-on version by Kubernetes version. If none is known, EKS uses its default."""
    before_nodes: bool
    """True if it must be installed before the first node joins."""
    service_account: str | None = None
    """The service account that needs AWS permissions (EKS Pod Identity)."""
    namespace: str | None = None
    file_system: Literal["efs", "fsx"] | None = None
    """The kind of file system that this add-on drives. It is installed only if the environment has one."""


class Ami(Fact):
    """One release of the EKS Neuron node image for one Kubernetes version."""

    version: Annotated[str, Text(r"^1\.\d+\.\d+-\d{8}$", "the release version of an EKS node image", "1.35.2-20260415")]
    """AMI release version in the form that a managed node group expects."""
    driver: Version
    """aws-neuronx-dkms"""
    efa: Version
    """EFA driver."""
    kernel: Version | None = None
    """None = not known."""


class PodAddresses(Fact):
    """IPv4 addresses that the CNI keeps on each node."""

    minimum: int
    warm: int
    """Number of further addresses that it allocates when pods start."""


class Chart(Fact):
    """One Helm chart, pinned."""

    chart: str
    version: str
    namespace: str
    repository: str | None = None
    """None for an OCI chart, whose address is in `chart`."""
    images: dict[str, str] = Field(default_factory=dict)
    """Chart value -> its default image repository or registry."""
    digest: (
        Annotated[
            str,
            Text(
                r"^[0-9a-f]{64}$",
                "a SHA-256 of 64 digits and small letters a to f",
                "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            ),
        ]
        | None
    ) = None
    """SHA-256 of the packed chart, as its repository publishes it; None = not known. Helm does not verify it."""


class ResourceNames(Fact):
    """Kubernetes names of a Trainium node's extended resources."""

    device: str
    core: str
    efa: str
    hugepages: str


class DeviceClaims(Fact):
    """How pods claim Neuron devices (Dynamic Resource Allocation)."""

    device_class: str
    """The DeviceClass of Neuron's driver, which is also the driver's name."""
    group: str
    """Attribute that connected devices have in common, with `{count}`."""
    parts: dict[str, tuple[int, ...]]
    """How many devices of a node a job may take, by instance type, besides all of them. Other types have no parts."""


class EksFacts(Fact):
    source: str
    date: dt.date
    default: str
    versions: dict[str, KubernetesVersion]
    amis: dict[str, dict[str, Ami]]
    """Node images by release date (for example 20260625, newest first) and Kubernetes version."""
    ami_type: str
    ami_parameter: str
    """SSM parameter of the node image's id, with `{version}`."""
    kernel: str
    zone_ids: dict[str, tuple[ZoneId, ...]]
    """Zones that can hold a control plane, by region."""
    addons: dict[str, Addon]
    pod_addresses: PodAddresses
    charts: dict[str, Chart]
    resources: ResourceNames
    claims: DeviceClaims
    hugepages_2mi: str
    endpoints: tuple[str, ...]
    """Interface endpoints that a cluster without access to the internet needs, in addition to the gateway endpoint of
    S3."""
    taint: str
    """Key of the taint that keeps other pods away from Trainium nodes."""
    shell_image: str
    """A small image with Python, for pods that only read files."""

    def addons_for(
        self, file_systems: Container[str], *, node_monitoring: bool, observability: bool
    ) -> dict[str, Addon]:
        """The add-ons of a cluster with these kinds of file systems, by name, in the catalogue's order."""
        chosen = {"eks-node-monitoring-agent": node_monitoring, "amazon-cloudwatch-observability": observability}
        return {
            name: addon
            for name, addon in self.addons.items()
            if chosen.get(name, True) and (addon.file_system is None or addon.file_system in file_systems)
        }

    def charts_for(
        self, mirrored: Iterable[tuple[str, str]], *, efa: bool, volcano: bool, claims: bool
    ) -> dict[str, Chart]:
        """The Helm charts of a cluster, by name, in the order in which they are installed.

        Args:
            mirrored: names and addresses (oci://...) of charts that come from another registry.
        """
        elsewhere = {self.charts[name].chart: address for name, address in mirrored}
        wanted = {"efa": efa, "volcano": volcano, "neuron-claims": claims}
        return {
            name: chart.model_copy(update={"chart": elsewhere[chart.chart], "repository": None})
            if chart.chart in elsewhere
            else chart
            for name, chart in self.charts.items()
            if wanted.get(name, True)
        }
