"""The sections of the Slurm engines: what they have in common (queues, compute resources, the nodes' system and image), and AWS PCS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from trainium_cdk.description.catalog import Catalog, Need
from trainium_cdk.description.catalog.models import PcsSizeName
from trainium_cdk.description.settings.base import (
    AmiId,
    FromMinutes,
    InstanceTypeName,
    PolicyArn,
    RootGib,
    Settings,
    refuse_duplicates,
)
from trainium_cdk.description.settings.section import Nodes, NodeSettings, QueueSettings, Section
from trainium_cdk.problems import KeyPath, wrong
from trainium_cdk.text import Text

Name = Annotated[
    str,
    Text(
        r"^[a-z][a-z0-9-]*$", "small letters, digits and hyphens, with a letter as the first", "compute1", max_length=25
    ),
]


_Counted = TypeVar("_Counted", bound="SlurmResource | CpuQueue")


def check_counts(nodes: _Counted) -> _Counted:
    """Refuses a minimum that is more than the maximum."""
    if nodes.min_nodes > nodes.max_nodes:
        raise wrong(
            f"min_nodes {nodes.min_nodes} is more than max_nodes {nodes.max_nodes}", f"set max_nodes: {nodes.min_nodes}"
        )
    return nodes


class SlurmResource(NodeSettings):
    """Nodes of one instance type in a queue."""

    name: Name = "trn"
    """Its name, unique in the queue. It is part of the nodes' host names."""
    min_nodes: int = Field(default=0, ge=0)
    """Static nodes. They always run and are always charged."""
    max_nodes: int = Field(default=16, ge=1)
    """Maximum number of nodes, static and dynamic together."""

    _counts = model_validator(mode="after")(check_counts)


class SlurmQueue(QueueSettings):
    """A Slurm partition."""

    name: Name = "compute1"
    """The partition's name."""
    compute_resources: Sequence[SlurmResource]
    custom_ami: AmiId | None = None
    """Image of its nodes. Default: the section's `custom_ami`, else the service's own image."""

    @classmethod
    def of(cls, instance_type: Any, max_nodes: int = 16, **more: Any) -> Self:
        """A queue of one instance type.

        Args:
            instance_type: its name, or an `ec2.InstanceType`.
            max_nodes: most nodes of it. Default: 16.
            more: other settings of the queue, for example `name`.
        """
        return cls(compute_resources=({"instance_type": instance_type, "max_nodes": max_nodes},), **more)

    @model_validator(mode="after")
    def _names(self) -> SlurmQueue:
        refuse_duplicates([r.name for r in self.compute_resources], "compute resource")
        return self


class CpuQueue(Settings):
    """A queue of nodes without Trainium: the stage `prepare` of jobs runs there, and scripts of your own (`trn submit --queue cpu`), for
    example evaluations. No Neuron software is installed but the framework. It is in the first zone of the network; a job has its nodes
    to itself."""

    name: Name = "cpu"
    """The partition's name."""
    instance_type: InstanceTypeName = "c5.2xlarge"
    """An ordinary x86_64 type. The default has 8 vCPUs and 16 GiB of memory, as PCS's login node, which installs the same packages."""
    min_nodes: int = Field(default=0, ge=0)
    """Static nodes. They always run and are always charged."""
    max_nodes: int = Field(default=2, ge=1)
    """Maximum number of nodes, static and dynamic together."""
    root_volume_gib: RootGib = 100
    """Size of each node's root volume, GiB."""
    custom_ami: AmiId | None = None
    """Image of its nodes. Default: the section's `custom_ami`, else the service's own image."""

    _counts = model_validator(mode="after")(check_counts)


_OF_IMAGES = frozenset({
    "root", "ubuntu", "ec2-user", "ssm-user", "slurm", "munge", "pcluster-admin", "ec2-instance-connect", "trn-jobs",
    "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "sshd", "syslog",
    "adm", "shutdown", "halt", "operator", "ftp", "dbus", "rpc", "rpcuser", "chrony", "tss",
    "sudo", "wheel", "admin", "docker", "lxd", "disk", "kmem", "shadow", "tty", "src", "staff", "users", "nogroup", "audio", "video", "dialout", "plugdev",
})  # fmt: skip
"""Accounts and groups of Ubuntu's and Amazon Linux's images, of agents on them, and of jobs without a user. A user gets the group of its name: sudo would get sudo's."""


class ClusterUser(Settings):
    """A person with an account on every node, whose jobs and files are separate from other users'."""

    name: Annotated[
        str,
        Text(
            r"^[a-z_][a-z0-9_.-]{0,31}$",
            "the name of a Linux user: at most 32 small letters, digits, _, dots and hyphens, with a letter or _ as the first",
            "alice",
        ),
    ]
    """Its name. `trn submit --user NAME` submits as this user."""
    uid: int = Field(ge=2000, le=59999)
    """Its number, the same on every node, and its group's. Files belong to the number: never give it to another person."""

    @model_validator(mode="after")
    def _not_of_the_image(self) -> ClusterUser:
        if self.name in _OF_IMAGES:
            raise wrong(f"{self.name} is an account of the image, of an agent or of jobs", "choose another name")
        return self


class SlurmSection(Section):
    """A Slurm cluster."""

    os: str
    queues: Sequence[SlurmQueue]
    cpu_queue: CpuQueue | None = CpuQueue.model_construct()
    """Nodes without Trainium, which start when a job needs them and cost nothing while none does. Default: up to two c5.2xlarge. null: none,
    and `prepare` runs on a node of the cheapest Trainium queue."""
    custom_ami: AmiId | None = None
    """Image of every node without its own custom_ami."""
    node_policies: tuple[PolicyArn, ...] = Field(default=(), max_length=8)
    """ARNs of IAM policies for the role of every node, jobs included, for example to read a bucket of data. IAM allows ten on a role;
    ParallelCluster's head node has three others and PCS's login node two."""
    users: tuple[ClusterUser, ...] = Field(default=(), max_length=100)
    """People with their own accounts, without password and sudo, which the nodes' bootstrap creates:
    `[{name: alice, uid: 2001}]`. Default: all jobs belong to one account, `trn-jobs`."""

    @model_validator(mode="after")
    def _names(self) -> SlurmSection:
        refuse_duplicates([q.name for q in self.queues], "queue")
        if self.cpu_queue and self.cpu_queue.name in [q.name for q in self.queues]:
            name = self.cpu_queue.name
            raise wrong(
                f"a queue and the CPU queue are named {name}",
                f"write cpu_queue: {{name: {name}-nodes}}, or cpu_queue: null for none",
            )
        refuse_duplicates([user.name for user in self.users], "user")
        if twice := [uid for uid, count in Counter(user.uid for user in self.users).items() if count > 1]:
            raise wrong(f"uid {twice[0]} is given to two users", "give each user its own uid")
        return self

    @property
    def mount_dirs(self) -> tuple[str, ...]:
        """Mount directories of its nodes in addition to `storage`."""
        return ()

    @property
    def several_users(self) -> str:
        """Source of its users; empty if there is only the image's."""
        return "local" if self.users else ""

    @property
    def queue_names(self) -> list[str]:
        """The partitions, the CPU queue last."""
        return [*(q.name for q in self.queues), *(q.name for q in self.cpu_queues)]

    @property
    def cpu_queues(self) -> tuple[CpuQueue, ...]:
        """The CPU queue, if there is one."""
        return (self.cpu_queue,) if self.cpu_queue else ()

    def nodes_of(self, section: str) -> Iterator[Nodes]:
        """Its Trainium nodes, with their key paths below the section's name."""
        for i, queue in enumerate(self.queues):
            at: KeyPath = (section, "queues", i)
            for j, resource in enumerate(queue.compute_resources):
                yield Nodes((*at, "compute_resources", j), at, queue, resource)


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
    """ubuntu2404; ubuntu2204 or alinux2023 with your own image that contains PCS's agent."""
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
    size: PcsSizeName = "small"
    """Size of the controller, which AWS charges by the hour: the most nodes, the login node included, and the most jobs. small: 32
    and 256; medium: 512 and 8,192; large: 2,048 and 16,384. It cannot be changed later."""
    queues: tuple[PcsQueue, ...] = Field(default=(PcsQueue(),), min_length=1)
    """The partitions; jobs go to the first where none is named."""
    login: PcsLoginNode = PcsLoginNode.model_construct()
    accounting: bool = False
    """Slurm accounting in a database that AWS runs and charges."""
    custom_ami: AmiId | None = None
    """Image of every node without its own custom_ami. Default: AWS's newest PCS-ready image at the deployment."""
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
