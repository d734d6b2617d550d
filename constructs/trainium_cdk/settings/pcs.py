"""The Slurm engine on AWS Parallel Computing Service (PCS)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from trainium_cdk.catalog import Catalog, Need
from trainium_cdk.catalog.pcs import Size
from trainium_cdk.settings.base import AmiId, InstanceTypeName, RootGib, Settings
from trainium_cdk.settings.cdk_types import FromMinutes
from trainium_cdk.settings.section import Nodes
from trainium_cdk.settings.slurm import SlurmQueue, SlurmResource, SlurmSection
from trainium_cdk.text import Text


class PcsResource(SlurmResource):
    """Nodes of one instance type in a queue: a compute node group, named after both. PCS turns hyperthreads off."""


class PcsQueue(SlurmQueue):
    """A Slurm partition."""

    compute_resources: tuple[PcsResource, ...] = Field(default=(PcsResource(),), min_length=1)
    """Its nodes: one entry for each instance type."""


class PcsLoginNode(Settings):
    """The node from which jobs are submitted. It always runs; PCS replaces it if it fails."""

    instance_type: InstanceTypeName = "c5.2xlarge"
    """An ordinary x86_64 type."""
    root_volume_gib: RootGib = 100
    """Size of its root volume, GiB."""


class Pcs(SlurmSection):
    """A cluster of AWS PCS: a Slurm whose controller AWS runs."""

    version: (
        Annotated[str, Text(r"^\d\d\.\d\d$", "a version of Slurm: two digits, a dot and two digits", "25.11")] | None
    ) = None
    """Version of Slurm, for example "25.11". Default: the catalogue's."""
    os: str = "ubuntu2404"
    """ubuntu2404; ubuntu2204 or alinux2023 with an image of your own that contains PCS's agent."""
    cluster_name: (
        Annotated[
            str,
            Text(
                r"^[A-Za-z][A-Za-z0-9-]*$",
                "letters, digits and hyphens, with a letter as the first",
                "my-cluster",
                min_length=3,
                max_length=40,
            ),
        ]
        | None
    ) = None
    """Default: the environment's name with `-pcs`."""
    size: Size = "small"
    """Size of the controller, which AWS charges by the hour: the most nodes, the login node included, and the most jobs. small: 32
    and 256; medium: 512 and 8,192; large: 2,048 and 16,384. It cannot be changed later."""
    queues: tuple[PcsQueue, ...] = Field(default=(PcsQueue(),), min_length=1)
    """The partitions; jobs go to the first where none is named."""
    login: PcsLoginNode = PcsLoginNode()
    accounting: bool = False
    """Slurm accounting in a database that AWS runs and charges."""
    custom_ami: AmiId | None = None
    """Image of every node without a custom_ami of its own. Default: AWS's newest PCS-ready image at the deployment."""
    scale_down_idle_minutes: Annotated[int, Field(ge=1, le=166_666), FromMinutes] = 10
    """A dynamic node without work is stopped after this time."""
    slurm_settings: dict[str, str | int] = Field(default_factory=dict)
    """Settings of slurm.conf that PCS lets a cluster set, for example `{MinJobAge: 600}`."""

    def nodes(self) -> Iterator[Nodes]:
        return self.nodes_of("pcs")

    def need(self, catalog: Catalog, families: tuple[str, ...]) -> Need:  # noqa: ARG002
        return Need("pcs", families, self.os)


def group_name(queue: SlurmQueue, resource: SlurmResource) -> str:
    """Name of a compute resource's node group: the beginning of its nodes' host names, and a feature of the nodes in Slurm."""
    return f"{queue.name}-{resource.name}"
