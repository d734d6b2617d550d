"""The Slurm engine: AWS ParallelCluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from trainium_cdk.description.catalog import Catalog, Need
from trainium_cdk.description.catalog.lookup import plain
from trainium_cdk.description.settings.base import (
    Address,
    AmiId,
    Arn,
    FromMinutes,
    InstanceTypeName,
    KeyArn,
    MaybeToken,
    MountDir,
    PolicyArn,
    RootGib,
    SecurityGroupId,
    Settings,
    SharedDir,
    SshSource,
    Version,
    refuse_duplicates,
    refuse_everywhere,
)
from trainium_cdk.description.settings.section import Nodes
from trainium_cdk.description.settings.slurm import Name, SlurmQueue, SlurmResource, SlurmSection
from trainium_cdk.problems import wrong
from trainium_cdk.text import Text

# fewer choices than CloudWatch's: the schema of aws-parallelcluster 3.16.1
LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
"""Days that ParallelCluster can keep logs (its schema at 3.16.1)."""


_NOT_EVERYWHERE = partial(refuse_everywhere, opened="SSH", fix="use SSM")


def _minutes_or_never(minutes: int) -> int:
    if minutes == 0:
        raise wrong("0 would stop nodes before their job starts", "write 1 or more, or -1 for never")
    return minutes


class Ssh(Settings):
    """SSH to the head node. Set it before the cluster is created: ParallelCluster cannot change the key later. SSM Session Manager always
    works without it."""

    from_cidrs: tuple[Annotated[SshSource, AfterValidator(_NOT_EVERYWHERE), MaybeToken], ...] = ()
    """SshSource that may connect (never 0.0.0.0/0), and IDs of prefix lists of networks (`pl-...`). Default: none, so that SSH only passes
    through Session Manager."""
    key_name: Annotated[str, Text(r"^[!-~]([ -~]{0,253}[!-~])?$", "the name of an EC2 key pair", "my-key")] | None = (
        None
    )
    """An existing EC2 key pair (ed25519). Default: a new one, whose private key is stored in SSM Parameter Store."""


class HeadNode(Settings):
    """The node that runs Slurm's controller. It always runs."""

    instance_type: InstanceTypeName = "c5.4xlarge"
    """An ordinary x86_64 type."""
    subnet: Literal["private", "public"] = "private"
    """`public` gives it a public address. SSM works in both."""
    elastic_ip: Address | None = None
    """An Elastic IP address of yours, for a head node in a public subnet. Set it before the cluster is created: ParallelCluster cannot
    change it later. Default: a new address."""
    root_volume_gib: RootGib = 500
    """Size of its root volume, GiB."""
    ssh: Ssh | None = None
    """SSH access. Default: none, SSM only."""
    custom_ami: AmiId | None = None
    """Its image. Default: `pcluster.custom_ami`, else ParallelCluster's image."""

    @model_validator(mode="after")
    def _reachable(self) -> HeadNode:
        if self.elastic_ip and self.subnet == "private":
            raise wrong(
                "elastic_ip is given, but a private subnet has no way from the internet",
                "write subnet: public, or remove elastic_ip",
            )
        return self


class ComputeResource(SlurmResource):
    """Nodes of one instance type in a queue."""

    hyperthreads: bool = False
    """Simultaneous multithreading: two threads for each core. Off is better for training."""


class Queue(SlurmQueue):
    """A Slurm partition."""

    compute_resources: tuple[ComputeResource, ...] = Field(default=(ComputeResource(),), min_length=1)
    """Its nodes: one entry for each instance type."""
    local_storage_dir: MountDir | None = "/local_storage"
    """Where the instance's NVMe disks are mounted; null for no mount."""
    custom_ami: AmiId | None = None
    """Image of its nodes. Default: `pcluster.custom_ami`, else ParallelCluster's image."""

    @model_validator(mode="after")
    def _not_reserved(self) -> Queue:
        if self.name == "default":
            raise wrong(
                "a queue cannot be named default: ParallelCluster reserves that name",
                "choose another name, for example compute1",
            )
        return self


class LoginNodes(Settings):
    """Nodes for interactive work, separate from the head node."""

    instance_type: InstanceTypeName = "c5.2xlarge"
    """An ordinary x86_64 type."""
    count: int = Field(default=1, ge=1, le=10)
    """Number of nodes. They always run."""
    subnet: Literal["private", "public"] = "private"
    """The subnets of their load balancer."""


class Accounting(Settings):
    """Slurm accounting in an existing MySQL database."""

    uri: Annotated[
        str,
        Text(
            r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?$",
            "the address of a database: a host, and a port if you like",
            "db.example.com:3306",
        ),
        MaybeToken,
    ]
    """host or host:port, of a MySQL server that Slurm supports. MariaDB from 11.6.2 on needs innodb_snapshot_isolation=OFF."""
    user: Annotated[
        str,
        Text(
            r"^[A-Za-z0-9_.@-]{1,32}$", "the name of a database user: at most 32 letters, digits and . _ @ -", "slurm"
        ),
    ]
    """Database user."""
    password_secret: Arn
    """Secrets Manager secret that holds the password as plain text."""
    client_security_group: SecurityGroupId | None = None
    """Security group that gives the head node access to the database."""
    database: (
        Annotated[
            str,
            Text(r"^[0-9a-z_]{1,64}$", "the name of a database: at most 64 small letters, digits and _", "slurm_acct"),
        ]
        | None
    ) = None
    """Name of the database on its server; Slurm creates it. Give it, and another `cluster_name` finds the old cluster's records there.
    Default: the cluster's name, with _ in place of hyphens."""


class SharedVolume(Settings):
    """A file system, or volume, that exists in the VPC and that every node mounts in addition to `storage`. `cdk destroy` leaves it."""

    name: Name
    """A name for it, which cannot change later."""
    type: Literal["efs", "fsx-lustre", "fsx-openzfs", "fsx-ontap", "ebs"]
    """What it is. An EBS volume is attached to the head node, which shares it."""
    id: Annotated[
        str, Text(r"^(fs|fsvol|vol)-[0-9a-f]{8,17}$", "the ID of a file system or volume", "fs-0123456789abcdef0")
    ]
    """fs-... (EFS, Lustre), fsvol-... (OpenZFS, ONTAP) or vol-... (EBS)."""
    mount_dir: SharedDir
    """Where every node mounts it. At /home it has the users' homes in place of the head node's disk: set it before the cluster is created."""
    security_group: SecurityGroupId | None = None
    """Security group of its servers. It gets rules that allow access from the cluster. If several volumes have one group, the first in the list has
    the rules: leave it there, as EC2 refuses a second rule of the same content while the first is there. Default: access is already allowed."""
    iam: bool = False
    """EFS: nodes mount it as an IAM identity that may read and write, which the EFS of another stack of this library requires. It cannot
    change later."""

    @model_validator(mode="after")
    def _id_of_its_type(self) -> SharedVolume:
        wanted = {"efs": "fs", "fsx-lustre": "fs", "ebs": "vol"}.get(self.type, "fsvol")
        if self.id.partition("-")[0] != wanted:
            raise wrong(
                f"id is {self.id}, but a volume of type {self.type} has an id {wanted}-...", "correct type or id"
            )
        if self.type == "ebs" and self.security_group:
            raise wrong("an EBS volume has no security group", "remove security_group")
        if self.iam and self.type != "efs":
            raise wrong(
                f"iam is given, but a volume of type {self.type} has no IAM permissions for mounting", "remove iam"
            )
        return self


PROVIDER_POLICIES = 4
"""How many policies the function's role has room for: IAM allows ten, and it has six."""


class Provider(Settings):
    """AWS's function that creates, updates and deletes the cluster."""

    role: (
        Annotated[
            str,
            Text(
                r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/\S+$",
                "the ARN of an IAM role",
                "arn:aws:iam::111122223333:role/Provider",
            ),
            MaybeToken,
        ]
        | None
    ) = None
    """The function's role, if your account's administrators create the roles. It must allow what the new role would: the policies
    ParallelClusterClusterPolicy1 and 2 and DefaultParallelClusterIamAdminPolicy of ParallelCluster's parallelcluster-policies.yaml,
    AWSLambdaBasicExecutionRole, events:PutRule, DeleteRule, PutTargets and RemoveTargets on rule/*, and s3:*Object, ListBucket and
    ListBucketVersions on the function's bucket (its name begins with the stack's); and trust lambda.amazonaws.com. Default: a new role."""
    policies: tuple[PolicyArn, ...] = Field(default=(), max_length=PROVIDER_POLICIES)
    """IAM policies added to the role that the stack creates, for example for other services that `overrides` use. IAM allows ten policies
    on a role, and the role already has six."""

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Provider:
        if self.role and self.policies:
            raise wrong(
                "policies are only added to a role that the stack creates, but role names an existing one",
                "attach the policies to that role, or remove role",
            )
        return self


class Pcluster(SlurmSection):
    """A ParallelCluster cluster with Slurm."""

    version: Version | None = None
    """ParallelCluster's version. Default: the catalogue's."""
    os: str = "ubuntu2404"
    """ubuntu2404, ubuntu2204 or alinux2023."""
    cluster_name: (
        Annotated[
            str,
            Text(
                r"^[a-zA-Z][a-zA-Z0-9-]*$",
                "letters, digits and hyphens, with a letter as the first",
                "my-cluster",
                max_length=60,
            ),
        ]
        | None
    ) = None
    """Default: the environment's name with `-slurm`."""
    head: HeadNode = HeadNode.model_construct()
    queues: tuple[Queue, ...] = Field(default=(Queue(),), min_length=1)
    """The partitions; jobs go to the first where none is named."""
    login_nodes: LoginNodes | None = None
    accounting: Accounting | None = None
    custom_ami: AmiId | None = None
    """Image of every node without its own custom_ami."""
    volume_keys: tuple[KeyArn, ...] = ()
    """KMS keys of volumes, which the head node and AWS's function that creates the cluster may use, only through EC2: the account's default
    key of EBS, if it is not AWS's own, and the keys of encrypted images and of EBS volumes in `shared_storage`. `trn check` names
    those that are missing. The key of `encryption` is always among them."""
    scale_down_idle_minutes: Annotated[int, AfterValidator(_minutes_or_never), Field(ge=-1), FromMinutes] = 10
    """A dynamic node without work is stopped after this time; -1: never."""
    slurm_settings: tuple[dict[str, str | int], ...] = ()
    """Lines for slurm.conf, for example `- {MaxJobCount: 20000}`."""
    shared_storage: tuple[SharedVolume, ...] = Field(default=(), max_length=20)
    """Existing file systems that every node mounts in addition to `storage`."""
    sudo: bool = True
    """Whether the image's user, which administrators are, may become root on the nodes. Jobs never may. Set it before the cluster is created:
    ParallelCluster cannot change it later."""
    provider: Provider = Provider.model_construct()
    dashboard: bool = True
    """CloudWatch dashboard of the cluster."""
    overrides: Annotated[dict[str, Any], AfterValidator(plain)] = Field(default_factory=dict)
    """Keys merged last into the cluster configuration that is sent to ParallelCluster, in ParallelCluster's spelling. Queues and other
    list items are matched by their `Name`; policies, security groups and lines of slurm.conf are added to the stack's own; null removes
    a key. `trn check` warns of what a setting controls, and refuses what ParallelCluster's schema refuses."""

    @model_validator(mode="after")
    def _volumes(self) -> Pcluster:
        refuse_duplicates([volume.name for volume in self.shared_storage], "volume")
        if reserved := [volume.name for volume in self.shared_storage if volume.name in ("efs", "fsx")]:
            raise wrong(f"{reserved[0]} is the name of the file system of `storage`", "choose another name")
        return self

    @property
    def several_users(self) -> str:
        return "directory" if self.directory else super().several_users

    @property
    def directory(self) -> Mapping[str, Any]:
        """ParallelCluster's section DirectoryService: a directory whose users have accounts on the nodes. Empty for none."""
        section = self.overrides.get("DirectoryService")
        return section if isinstance(section, Mapping) else {}

    @property
    def mount_dirs(self) -> tuple[str, ...]:
        return tuple(volume.mount_dir for volume in self.shared_storage)

    def nodes(self) -> Iterator[Nodes]:
        return self.nodes_of("pcluster")

    def need(self, catalog: Catalog, families: tuple[str, ...]) -> Need:  # noqa: ARG002
        return Need("slurm", families, self.os, self.version)
