"""The shape of the facts about AWS PCS."""

import datetime as dt
from typing import Literal

from pydantic import Field

from trainium_cdk.description.catalog.facts import Fact

Size = Literal["small", "medium", "large"]


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
    sizes: dict[Size, PcsSize]
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
