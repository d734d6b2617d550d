"""Contract of every stack's outputs: its version, the fleet, the conversion of fields to flat strings, and each field's form.

A stack's outputs are flat strings of at most 1,024 bytes each, so a fleet is one output. Outputs carry the facts that a job needs of its
instance type, so that a type described only in an environment file works from any machine.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainium_cdk.errors import OutputsError
from trainium_cdk.text import S3_FOLDER

CONTRACT = "1"
"""Raised when an output changes its meaning: a `trn` that reads another one says so instead of guessing."""
CONTRACT_KEY = "TrnContract"
"""Its output: a stack without it is not one of trainium-cdk."""

PAYLOADS = "trn/payloads/"
"""Prefix, in the stack's bucket, of what the client sends to the cluster and SSM must not keep: each is there for one command."""

RESPONSES = "trn/responses/"
"""Prefix, in the stack's bucket, of what the head node returns and Run Command has no room for: each is there for one command."""

SOURCES = "images/"
"""Prefix, in the stack's bucket, of the zip files that images are built from: jobs cannot write there."""

JOB_FILES = "jobs/"
"""Prefix, in the stack's bucket, of what jobs read and write: all of the bucket that nodes and pods have access to."""

CODE = f"{JOB_FILES}code"
"""Prefix of what is sent of workdirs (`trn submit --workdir`), in the stack's bucket."""
CODE_DAYS = 60
"""For which it is kept there. A submission sends what is older than half of that again, so that a job has 30 days at least to fetch it."""

COPIES = f"{JOB_FILES}copies/"
"""Prefix of what `trn cp` copies, in the stack's bucket: until it has arrived."""

KEPT_DAYS = {COPIES: 1, PAYLOADS: 1, RESPONSES: 1, f"{CODE}/": CODE_DAYS}
"""Prefix -> days after which the stack's bucket deletes the objects there. On EKS, only what is below `JOB_FILES`."""

_OPTIONAL = ("users", "prepare_memory_gib", "health", "keep", "cache")
"""Fields without an output where they are empty."""
_FLEET = "Fleet"
_NONE = "-"
"""CloudFormation refuses empty outputs."""

Exports = dict[str, tuple[str, str]]
"""Output key -> (value, description)."""
Keys = Mapping[str, tuple[str, str]]
"""Output key -> (field of the cluster, description). The description is what a user reads in the console."""


class Fleet(BaseModel):
    """Nodes of one instance type in one queue."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    queue: str
    """Slurm partition, or Kueue's LocalQueue."""
    resource: str
    """Compute resource, or node group."""
    instance_type: str
    nodes: int
    """Most nodes it can have."""
    devices: int
    """Trainium chips of a node; 0 for one without."""
    cores: int
    """Logical NeuronCores of a node: one worker process each. 1 for a node without Trainium."""
    efa: int
    """EFA interfaces of a node; 0 = off."""
    family: str
    capacity_type: str = "on-demand"
    reservation: str = ""
    """Id of its capacity block; empty: there is none, or a group of several. Only the outputs of a block have it."""
    ultraserver: int = 0
    """Instances of one UltraServer; 0 = in none."""
    lnc: int = 0
    """Physical NeuronCores of a logical one; 0 = the instance type's default."""
    home: str = ""
    """The queue that these nodes are named after, where `queue` is your own partition with nodes of others; else empty."""
    claims: bool = False
    """Pods claim its devices (Dynamic Resource Allocation). False: they request them from the device plug-in."""
    share: bool = False
    """Jobs take parts of its nodes."""

    @property
    def text(self) -> str:
        """Its output, without what only some fleets have: a capacity block's `reservation`, your own partition's `home`, `claims`, `share`."""
        some = ("reservation", "home", "claims", "share")
        return self.model_dump_json(exclude={name for name in some if not getattr(self, name)})


def block_of(capacity_type: str, reservation: str | None) -> str:
    """The id of a capacity block that nodes are in; empty if they are in none, or the block has no id."""
    return reservation if capacity_type == "capacity-block" and reservation and reservation.startswith("cr-") else ""


def _from_output(value: Any) -> Any:
    """An output of JSON, or empty."""
    return (json.loads(value) if value else None) if isinstance(value, str) else value


class ClusterOutputs(BaseModel):
    """Outputs of any deployed cluster, for the jobs."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    keys: ClassVar[Keys]
    """Its outputs, in each engine's subclass."""
    containers: ClassVar[bool] = False
    """Jobs run in container images."""
    socket_interface: ClassVar[str] = ""
    """Network interface over which the collectives set up; empty for the default."""
    version_fix: ClassVar[str] = "Deploy with another bootstrap: {neuron_release: ...}"
    """Fix for a node's driver that is not compatible with a job's runtime."""

    engine: str
    """Name of the engine."""
    stack: str
    region: str
    cluster_name: str
    shared_dir: str
    """The shared file system where jobs live."""
    folder: str = "trn"
    """Where the jobs' files are on it."""
    users: str = ""
    """Slurm: where its users come from, local or directory; empty if all jobs belong to one."""
    mount_dirs: tuple[str, ...]
    kernel: str
    neuron_driver: str = ""
    """Version of the nodes' Neuron driver; empty = not known."""
    neuron_release: str
    framework: str
    os: str = ""
    """Operating system of the nodes, where jobs use its packages; empty where they run in containers."""
    image: str = ""
    """The training image where a job names none; empty for none."""
    bucket: str
    """The stack's own bucket."""
    registry_uri: str = ""
    health: str = ""
    """Actions on a training without progress, in addition to the report: `hang=restart nan=stop`."""
    keep: str = ""
    """s3://bucket/prefix to which complete checkpoints are copied; empty for none."""
    cache: str = ""
    """s3://bucket/prefix of compiled graphs; empty for none."""
    fleets: tuple[Fleet, ...] = Field(min_length=1)
    cpu: Annotated[Fleet | None, BeforeValidator(_from_output)] = None
    """Nodes without Trainium for jobs, in their own queue; None if there are none, as on EKS and in stacks of older releases."""

    @classmethod
    def fields(cls, outputs: Mapping[str, str]) -> dict[str, Any]:
        """The values of its fields in a stack's outputs: the way back from `export`."""
        return fields(cls.keys, outputs)

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f.queue for f in self.fleets))

    @property
    def every_fleet(self) -> tuple[Fleet, ...]:
        """The fleets, the one without Trainium last."""
        return (*self.fleets, self.cpu) if self.cpu else self.fleets

    @property
    def has_blocks(self) -> bool:
        """A fleet of it is a capacity block, which ends on a day."""
        return any(fleet.reservation for fleet in self.fleets)

    def of_team(self, team: str) -> Self:
        """The cluster as a team of it sees it.

        Raises:
            OutputsError: the cluster has no such team.
        """
        raise OutputsError(
            f"{self.stack} has no teams: they are namespaces of Kubernetes (eks.queues). Remove --team {team}"
        )

    def of_teams(self) -> Mapping[str, Self]:
        """The cluster as each of its teams sees it, by the team's name; empty without teams."""
        return {}

    def of_user(self, name: str) -> Self:
        """The cluster as one of its users sees it.

        Raises:
            OutputsError: the cluster has no such user.
        """
        raise OutputsError(
            f"{self.stack} has no users: access to it is given to IAM principals (eks.access). Remove --user {name}"
        )

    def queue(self, name: str | None = None) -> tuple[Fleet, ...]:
        """The fleets of a queue; of the first Trainium one where no name is given.

        Raises:
            OutputsError: the cluster has no such queue.
        """
        wanted = name or self.queues[0]
        found = tuple(f for f in self.every_fleet if f.queue == wanted)
        if not found:
            has = dict.fromkeys(f.queue for f in self.every_fleet)
            raise OutputsError(f"{self.stack} has no queue {wanted!r}; it has {', '.join(has)}")
        return found


COMMON_KEYS: Keys = {
    "ClusterName": ("cluster_name", "Name of the cluster in the AWS console"),
    "SharedDir": ("shared_dir", "Folder on every node that all nodes share; jobs live in it"),
    "MountDirs": ("mount_dirs", "Folders on every node that all nodes share"),
    "Kernel": ("kernel", "Linux kernel of the nodes"),
    "NeuronDriver": ("neuron_driver", "Version of the Neuron driver on the nodes; - if it is not known"),
    "NeuronRelease": ("neuron_release", "Release of the AWS Neuron SDK that jobs use"),
    "Framework": ("framework", "Framework that jobs train with: torch-native is TorchNeuron, torch-xla is PyTorch/XLA"),
    "Bucket": ("bucket", "S3 bucket of this stack, for files on their way to and from jobs"),
    "RegistryUri": ("registry_uri", "ECR repository for your training images; - if there is none"),
    "JobHealth": ("health", "What trn does, in addition to the report, when a training hangs or its loss becomes NaN"),
    "JobKeep": ("keep", "Where in S3 complete checkpoints of jobs are copied to, and stay when this stack is gone"),
    "JobCache": ("cache", "Where in S3 compiled graphs of jobs are, for every cluster that uses this address"),
}
NEXT_STEP = "NextStep"
"""The output for people: a command. Nothing reads it."""
_LEFT = {
    "slurm": "logs of ParallelCluster's provider, and its bucket parallelcluster-*-v1-do-not-delete, which all clusters of the region share",
    "eks": "load balancers and volumes that your objects in Kubernetes have created",
}
"""Engine -> what plain `cdk destroy` leaves. `trn destroy` deletes it, or lists it where it is shared or anybody could have tagged it so."""


def next_step(stack: str, region: str, engine: str = "", on_destroy: str = "delete") -> Exports:
    """The outputs that say what to type: next, and at the end. The CDK sorts outputs by key. `stack` and `region` may be CDK tokens."""
    command = f"trn submit --list --here --stack {stack} --region {region}"
    kept = "data, logs and keys, as on_destroy is keep" if on_destroy == "keep" else ""
    destroyed = f"trn destroy {stack} --region {region}. Plain cdk destroy leaves {'; '.join(filter(None, [_LEFT.get(engine), kept])) or 'nothing'}"
    return {
        NEXT_STEP: (command, "Type this next: it lists the kinds of jobs, and whether this cluster can run each"),
        "WhenDestroyed": (destroyed, "The command that removes the stack, and what the CDK's own would leave"),
    }


def export(engine: str, keys: Keys, values: Mapping[str, str], fleets: Sequence[Fleet]) -> Exports:
    """The outputs of a stack; `values` by field, where empty stands for "has none"."""
    found = {
        key: (values[name] or _NONE, text)
        for key, (name, text) in keys.items()
        if values.get(name) or name not in _OPTIONAL
    }
    found[CONTRACT_KEY] = (CONTRACT, "Version of the outputs that the command trn reads")
    found["TrnEngine"] = (engine, "What schedules jobs: slurm (ParallelCluster), pcs (AWS PCS) or eks (Kubernetes)")
    for i, fleet in enumerate(fleets):
        found[f"{_FLEET}{i}"] = (
            fleet.text,
            f"For the command trn: nodes of the queue {fleet.queue}",
        )
    return found


def fields(keys: Keys, outputs: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a cluster from its outputs, the way back from `export`."""
    data: dict[str, Any] = {
        name: "" if outputs[key] == _NONE else outputs[key] for key, (name, _) in keys.items() if key in outputs
    }
    data["mount_dirs"] = [d for d in data.get("mount_dirs", "").split(",") if d]
    data["fleets"] = tuple(Fleet.model_validate_json(outputs[k]) for k in numbered(_FLEET, outputs))
    return data


def numbered(prefix: str, outputs: Mapping[str, str]) -> list[str]:
    """The keys that are a prefix and a number, by the number."""
    found = [k for k in outputs if k.startswith(prefix) and k.removeprefix(prefix).isdecimal()]
    return sorted(found, key=lambda k: int(k.removeprefix(prefix)))


UNKNOWN = "not-deployed"
"""Stands for what AWS names, where a stack is only described."""

_INSTANCE = rf"i-[0-9a-f]{{8,17}}|{UNKNOWN}"
_LABEL, _ID = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
_FOLDER, _VERSION = r"(/[A-Za-z0-9_][A-Za-z0-9_-]*)+", r"[0-9][A-Za-z0-9_.+-]{0,99}"
_IMAGE = r"[a-z0-9][A-Za-z0-9._:/@-]{0,511}"
_SYSTEM = "root|daemon|bin|sys|sync|adm|nobody|slurm|munge|slurmrestd|pcluster-admin|ssm-user|dbus|sshd|systemd-.*|_.*"
_USER = rf"(?!({_SYSTEM})$)[A-Za-z][A-Za-z0-9_.@-]{{0,63}}"

FORMS: Mapping[str, str] = {
    "cluster_name": r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}",
    "shared_dir": _FOLDER,
    "folder": r"trn(-users/[A-Za-z_][A-Za-z0-9_.@-]{0,63})?",
    "users": "|local|directory",
    "mount_dirs": _FOLDER,
    "kernel": _VERSION,
    "neuron_driver": f"|{_VERSION}",
    "neuron_release": _VERSION,
    "framework": _LABEL,
    "os": f"|{_LABEL}",
    "image": f"|{_IMAGE}",
    "health": r"|[a-z]{1,20}=[a-z]{1,20}( [a-z]{1,20}=[a-z]{1,20}){0,9}",
    "keep": f"|{S3_FOLDER}",
    "cache": f"|{S3_FOLDER}",
    "bucket": r"|[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "registry_uri": f"|{_IMAGE}",
    "head_node_id": f"|{_INSTANCE}",
    "job_user": _USER,
    "image_user": _USER,
    "venv": r"(/|~[A-Za-z_][A-Za-z0-9_.@-]{0,63}/)?[A-Za-z0-9_](?!.*(^|/)\.\.(/|$))[A-Za-z0-9_./-]{0,255}",
    "cluster_id": rf"pcs_[a-z0-9]{{1,60}}|{UNKNOWN}",
    "login_group_id": rf"pcs_[a-z0-9]{{1,60}}|{UNKNOWN}",
    "namespace": _LABEL,
    "service_account": _LABEL,
    "claims": _LABEL,
    "shell_image": f"|{_IMAGE}",
    "build_project": f"|{_ID}",
    "endpoint": "private|public",
    "bastion_host_id": f"|{_INSTANCE}",
    "kubernetes_version": r"|1\.[0-9]{1,3}",
    "access_role": rf"|arn:aws[a-z-]*:iam::[0-9]{{12}}:role/[!-~]{{1,512}}|{UNKNOWN}",
    "queue": _ID,
    "resource": _ID,
    "instance_type": r"[a-z][a-z0-9-]{0,39}\.[a-z0-9-]{1,40}",
    "family": "[a-z][a-z0-9-]{0,39}",
    "capacity_type": "[a-z][a-z-]{0,39}",
    "reservation": "|cr-[0-9a-f]{8,17}",
}
"""Field -> a regular expression of all of its text, or of each of its texts. An empty one: the cluster has none. Anybody who may create a stack
chooses its outputs, and `trn` runs commands by them with an administrator's rights."""
_MOST = 10**7
"""Suffix of any number."""


def wrong(model: BaseModel) -> Iterator[tuple[str, Any]]:
    """The fields, and their values, that do not have their form, in a cluster and in what it consists of."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        for one in value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,):
            if isinstance(one, BaseModel):
                yield from wrong(one)
            elif (isinstance(one, str) and name in FORMS and not re.fullmatch(FORMS[name], one, re.ASCII)) or (
                isinstance(one, int) and not 0 <= one <= _MOST
            ):
                yield name, one
