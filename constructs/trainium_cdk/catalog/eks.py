"""The shape of the facts about Amazon EKS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainium_cdk.catalog.models import Fact, Version, ZoneId


class KubernetesVersion(Fact):
    """Until when EKS supports one Kubernetes version."""

    standard_support_until: dt.date
    extended_support_until: dt.date


class Addon(Fact):
    """One EKS add-on, pinned by Kubernetes version."""

    versions: dict[str, Annotated[str, StringConstraints(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")]]
    """Version by Kubernetes version. Where none is known EKS takes its own default."""
    before_nodes: bool
    """Whether it must be there when the first node joins."""
    service_account: str | None = None
    """The service account that needs AWS permissions (EKS Pod Identity)."""
    namespace: str | None = None
    file_system: Literal["efs", "fsx"] | None = None
    """The kind of file system that it is the driver of: it is installed where there is one."""


class Ami(Fact):
    """One release of the EKS Neuron node image for one Kubernetes version."""

    version: Annotated[str, StringConstraints(pattern=r"^1\.\d+\.\d+-\d{8}$")]
    """AMI release version, as a managed node group takes it."""
    driver: Version
    """aws-neuronx-dkms"""
    efa: Version
    """EFA driver."""
    kernel: Version | None = None
    """None = not known."""


class PodAddresses(Fact):
    """IPv4 addresses that the CNI is told to keep at each node."""

    minimum: int
    warm: int
    """How many more it takes when pods start."""


class Chart(Fact):
    """One Helm chart, pinned."""

    chart: str
    version: str
    namespace: str
    repository: str | None = None
    """None for an OCI chart, whose address is in `chart`."""
    images: dict[str, str] = Field(default_factory=dict)
    """Value of the chart -> the image's repository, or registry, that it has by default."""
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the packed chart, as its repository gives it; None = not known. Helm does not compare it."""


class ResourceNames(Fact):
    """The extended resources of a Trainium node, as Kubernetes names them."""

    device: str
    core: str
    efa: str
    hugepages: str


class EksFacts(Fact):
    source: str
    date: dt.date
    default: str
    versions: dict[str, KubernetesVersion]
    amis: dict[str, dict[str, Ami]]
    """Node images by date of release (as 20260625, newest first) and Kubernetes version."""
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
    hugepages_2mi: str
    endpoints: tuple[str, ...]
    """Interface endpoints without which a cluster that does not reach the internet does not work, beside the gateway of S3."""
    taint: str
    """Key of the taint that keeps other pods off Trainium nodes."""
    shell_image: str
    """A small image with a shell, for pods that only read files."""

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

    def charts_for(self, mirrored: Iterable[tuple[str, str]], *, efa: bool, volcano: bool) -> dict[str, Chart]:
        """The Helm charts of a cluster, by name, in the order in which they are installed.

        Args:
            mirrored: names and addresses (oci://...) of charts that come from another registry.
        """
        elsewhere = dict(mirrored)
        wanted = {"efa": efa, "volcano": volcano}
        return {
            name: chart.model_copy(update={"chart": elsewhere[name], "repository": None})
            if name in elsewhere
            else chart
            for name, chart in self.charts.items()
            if wanted.get(name, True)
        }
