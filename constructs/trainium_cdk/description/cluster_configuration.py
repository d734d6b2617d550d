"""The cluster configuration that ParallelCluster reads, rendered from an environment. Pure: no AWS and no CDK.
 Keys are ParallelCluster's own. The tests check every configuration with its schema, validators and update policy; comments give the reason
for values that are not obvious.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk.description.node import yaml
from trainium_cdk.description.node.env import CPU_ROLE, queue_arguments
from trainium_cdk.description.settings import ComputeResource, CpuQueue, Environment, LoginNodes, Queue
from trainium_cdk.description.settings.reserved import is_group

Config = dict[str, Any]

NO_ADDRESS = "127.0.0.1/32"
"""ParallelCluster always opens port 22 of head and login nodes, by default to all addresses: with this value no one can
connect."""

BOOTSTRAP_SECONDS = {"HeadNodeBootstrapTimeout": 3300, "ComputeNodeBootstrapTimeout": 2700}
"""ParallelCluster's 2,100 s are for its own set-up; building the driver and installing the framework come on top. The head node
must finish within the hour that CloudFormation allows a custom resource."""
AFTER_RESERVED = 2000
"""Slurm's weight of nodes that are not reserved; reserved ones are used first: ParallelCluster's default for dynamic nodes is 1000."""
_VOLUMES = {
    "efs": ("Efs", "FileSystemId"),
    "fsx-lustre": ("FsxLustre", "FileSystemId"),
    "fsx-openzfs": ("FsxOpenZfs", "VolumeId"),
    "fsx-ontap": ("FsxOntap", "VolumeId"),
    "ebs": ("Ebs", "VolumeId"),
}
"""Type of a volume -> its StorageType, and the key of its id."""
_APART: Config = {"Enabled": False}
"""In no placement group."""
PURCHASE = {"on-demand": "ONDEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
"""Capacity type -> the word of ParallelCluster and of PCS."""


@dataclass(frozen=True)
class ClusterIds:
    """Ids of the stack's other resources. Every value may be a CDK token.

    Attributes:
        head_subnet: the head node's subnet.
        queue_subnets: queue name -> subnet. One each: EFA does not cross subnets.
        entry_url: s3:// URL of entry.sh. Never changes during the life of the cluster (ParallelCluster rejects it).
        scripts_url: s3:// URL of the current node scripts.
        job_role: ARN of the role of jobs. Default: they have none.
        pointer: name of the SSM parameter that holds `scripts_url`. Never changes during the life of the cluster.
        policies: IAM policies of every node, in addition to ParallelCluster's own.
        head_policies, login_policies: IAM policies of the head node and of login nodes, in addition to `policies`.
        security_groups: added to every node, in addition to ParallelCluster's own.
        login_subnet: the login nodes' subnet.
        head_security_groups: added to the head node only. efs_id, fsx_id: the shared file systems.
        key_name: EC2 key pair of the head node.
        ssh_source: the CIDR, or the prefix list, that may connect to port 22.
        ssh_security_groups: added to the head node and to login nodes: others that may connect.
        region: the stack's. Default: the environment's.
        tags: a token that stands for the list of tags. Default: the environment's.
        reservation_groups: tokens among the reservations that stand for ARNs of resource groups.
    """

    head_subnet: str
    queue_subnets: Mapping[str, str]
    entry_url: str
    scripts_url: str
    pointer: str
    job_role: str = ""
    policies: tuple[str, ...] = ()
    head_policies: tuple[str, ...] = ()
    login_policies: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    login_subnet: str | None = None
    head_security_groups: tuple[str, ...] = ()
    efs_id: str | None = None
    fsx_id: str | None = None
    key_name: str | None = None
    ssh_source: str = NO_ADDRESS
    ssh_security_groups: tuple[str, ...] = ()
    region: str | None = None
    tags: Any = None
    reservation_groups: frozenset[str] = frozenset()


def render(env: Environment, ids: ClusterIds) -> Config:
    """The cluster configuration of an environment. `pcluster.overrides` is merged in last."""
    p = env.pcluster
    ids = replace(ids, policies=(*ids.policies, *p.node_policies))
    config: Config = {
        "Region": ids.region or env.region,
        "Image": _given(Os=p.os, CustomAmi=p.custom_ami),
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": _head(env, ids),
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": _slurm(env),
            "SlurmQueues": [
                *(_queue(env, queue, ids) for queue in p.queues),
                *(_cpu_queue(queue, ids) for queue in p.cpu_queues),
            ],
        },
        "SharedStorage": _shared_storage(env, ids),
        "Monitoring": {
            "Logs": {
                "CloudWatch": {
                    "Enabled": True,
                    "RetentionInDays": env.log_days,
                    # A rollback deletes the cluster at once, and its logs have the reason of the failure. An intended
                    # deletion also deletes them: see TrnClusterName.
                    "DeletionPolicy": "Retain",
                }
            },
            "Dashboards": {"CloudWatch": {"Enabled": p.dashboard}},
        },
        "DevSettings": {"Timeouts": dict(BOOTSTRAP_SECONDS)},
    }
    login = _login(p.login_nodes, ids) if p.login_nodes else None
    tags = ids.tags or [{"Key": key, "Value": value} for key, value in sorted(env.tags.items())]
    deployment = None if p.sudo else {"DisableSudoAccessForDefaultUser": True}
    more = _given(LoginNodes=login, Tags=tags, DeploymentSettings=deployment)
    return merged(config | more, p.overrides)


def to_yaml(config: Config) -> str:
    """The configuration as YAML, readable and usable for `pcluster create-cluster`."""
    return yaml.dump(config, width=120)


def _given(**values: Any) -> Config:
    """The values without empty ones."""
    return {key: value for key, value in values.items() if value}


def _head(env: Environment, ids: ClusterIds) -> Config:
    head = env.pcluster.head
    public = head.subnet == "public"
    return {
        "InstanceType": head.instance_type,
        "Networking": _given(
            SubnetId=ids.head_subnet,
            ElasticIp=head.elastic_ip or public,  # the public subnets assign no addresses automatically
            AdditionalSecurityGroups=[*ids.security_groups, *ids.head_security_groups, *ids.ssh_security_groups],
        ),
        "Ssh": _given(AllowedIps=ids.ssh_source, KeyName=ids.key_name),
        "LocalStorage": {"RootVolume": _root(head.root_volume_gib)},
        "CustomActions": _stable_actions(ids),
        "Iam": _iam(*ids.policies, *ids.head_policies),
        "Imds": {"Secured": True},
        **_given(Image=_given(CustomAmi=head.custom_ami)),
    }


def _stable_actions(ids: ClusterIds) -> Config:
    """Actions of head and login nodes. ParallelCluster rejects any change of OnNodeConfigured there, its arguments
    included, so both refer to the pointer to the current scripts; new scripts arrive with OnNodeUpdated. A failure of that would fail
    the update, which CloudFormation then cannot roll back: it is reported only."""
    return {
        "OnNodeConfigured": {"Script": ids.entry_url, "Args": [f"ssm://{ids.pointer}"]},
        "OnNodeUpdated": {"Script": ids.entry_url, "Args": [ids.scripts_url, "TRN_ON_FAILURE=report"]},
    }


def _of_jobs(ids: ClusterIds) -> list[str]:
    return [f"TRN_JOB_ROLE={ids.job_role}"] if ids.job_role else []


def _iam(*policies: str) -> Config:
    return {"AdditionalIamPolicies": [{"Policy": arn} for arn in policies]}


def _root(gib: int) -> Config:
    return {"Size": gib, "VolumeType": "gp3", "Encrypted": True}


def _slurm(env: Environment) -> Config:
    p = env.pcluster
    a = p.accounting
    return {
        "ScaledownIdletime": p.scale_down_idle_minutes,
        "QueueUpdateStrategy": "DRAIN",  # a change waits for the running jobs
        **_given(
            Dns=None if _reaches_route_53(env) else {"DisableManagedDns": True, "UseEc2Hostnames": True},
            CustomSlurmSettings=[dict(line) for line in p.slurm_settings],
            Database=a
            and {
                "Uri": a.uri,
                "UserName": a.user,
                "PasswordSecretArn": a.password_secret,
                **_given(DatabaseName=a.database),
            },
        ),
    }


def _reaches_route_53(env: Environment) -> bool:
    """Route 53 names the nodes. Without it they keep EC2's own names (ParallelCluster user guide, "no internet access")."""
    network = env.network
    return network.reaches_internet or (not network.existing and "route53" in network.interface_endpoints)


def _queue(env: Environment, queue: Queue, ids: ClusterIds) -> Config:
    together = {r.name: _placement(env, queue, r) for r in queue.compute_resources}
    for_most = next((chosen for chosen in together.values() if chosen != _APART), _APART)
    disks = any(env.catalog.instance(r.instance_type).nvme.count for r in queue.compute_resources)
    ephemeral = _given(MountDir=disks and queue.local_storage_dir)
    resources = []
    for resource in queue.compute_resources:
        rendered = _resource(env, resource, ids)
        if not resource.reservation and any(other.reservation for other in queue.compute_resources):
            rendered["DynamicNodePriority"] = AFTER_RESERVED
        if together[resource.name] != for_most:
            rendered["Networking"] = {"PlacementGroup": dict(together[resource.name])}
        resources.append(rendered)
    return {
        "Name": queue.name,
        "CapacityType": PURCHASE[queue.capacity_type],
        "JobExclusiveAllocation": True,  # a node's devices belong to one job
        "ComputeSettings": {"LocalStorage": _given(RootVolume=_root(queue.root_volume_gib), EphemeralVolume=ephemeral)},
        "ComputeResources": resources,
        "Networking": _given(
            SubnetIds=[ids.queue_subnets[queue.name]],
            PlacementGroup=dict(for_most),
            AdditionalSecurityGroups=list(ids.security_groups),
        ),
        "CustomActions": {
            "OnNodeConfigured": {
                "Script": ids.entry_url,
                "Args": [ids.scripts_url, *queue_arguments(env, queue.name), *_of_jobs(ids)],
            }
        },
        "Iam": _iam(*ids.policies),
        **_given(Image=_given(CustomAmi=queue.custom_ami)),
    }


def _cpu_queue(queue: CpuQueue, ids: ClusterIds) -> Config:
    return {
        "Name": queue.name,
        "CapacityType": "ONDEMAND",
        "JobExclusiveAllocation": True,
        "ComputeSettings": {"LocalStorage": {"RootVolume": _root(queue.root_volume_gib)}},
        "ComputeResources": [
            {
                "Name": queue.name,
                "InstanceType": queue.instance_type,
                "MinCount": queue.min_nodes,
                "MaxCount": queue.max_nodes,
            }
        ],
        "Networking": _given(
            SubnetIds=[ids.queue_subnets[queue.name]], AdditionalSecurityGroups=list(ids.security_groups)
        ),
        "CustomActions": {
            "OnNodeConfigured": {"Script": ids.entry_url, "Args": [ids.scripts_url, CPU_ROLE, *_of_jobs(ids)]},
        },
        "Iam": _iam(*ids.policies),
        **_given(Image=_given(CustomAmi=queue.custom_ami)),
    }


def _efa(env: Environment, resource: ComputeResource) -> bool:
    return env.catalog.instance(resource.instance_type).efa_of(resource.efa) > 0


def _placement(env: Environment, queue: Queue, resource: ComputeResource) -> Config:
    chosen = queue.placement(efa=_efa(env, resource), reservation=resource.reservation)
    return {"Name": chosen} if isinstance(chosen, str) else {"Enabled": chosen}


def _resource(env: Environment, resource: ComputeResource, ids: ClusterIds) -> Config:
    group = is_group(resource.reservation) or resource.reservation in ids.reservation_groups
    target = f"CapacityReservation{'ResourceGroupArn' if group else 'Id'}"
    return {
        "Name": resource.name,
        "InstanceType": resource.instance_type,
        "MinCount": resource.min_nodes,
        "MaxCount": resource.max_nodes,
        "DisableSimultaneousMultithreading": not resource.hyperthreads,
        "Efa": {"Enabled": _efa(env, resource)},
        **_given(CapacityReservationTarget=_given(**{target: resource.reservation})),
    }


def _shared_storage(env: Environment, ids: ClusterIds) -> list[Config]:
    """File systems by id: they belong to the stack, and outlive the cluster."""
    found: list[Config] = []
    if env.storage.efs:
        found.append(
            {
                "Name": "efs",
                "MountDir": env.storage.efs.mount_dir,
                "StorageType": "Efs",
                "EfsSettings": {"FileSystemId": ids.efs_id, "EncryptionInTransit": True, "IamAuthorization": True},
            }
        )
    if env.storage.fsx:
        found.append(
            {
                "Name": "fsx",
                "MountDir": env.storage.fsx.mount_dir,
                "StorageType": "FsxLustre",
                "FsxLustreSettings": {"FileSystemId": ids.fsx_id},
            }
        )
    for volume in env.pcluster.shared_storage:
        kind, key = _VOLUMES[volume.type]
        given: Config = {key: volume.id}
        if volume.type == "efs":
            given |= {"EncryptionInTransit": True, **_given(IamAuthorization=volume.iam)}
        found.append({"Name": volume.name, "MountDir": volume.mount_dir, "StorageType": kind, f"{kind}Settings": given})
    return found


def _login(login: LoginNodes, ids: ClusterIds) -> Config:
    pool = {
        "Name": "login",
        "InstanceType": login.instance_type,
        "Count": login.count,
        "Networking": _given(
            SubnetIds=[ids.login_subnet], AdditionalSecurityGroups=[*ids.security_groups, *ids.ssh_security_groups]
        ),
        "Ssh": {"AllowedIps": ids.ssh_source},
        "CustomActions": _stable_actions(ids),
        "Iam": _iam(*ids.policies, *ids.login_policies),
    }
    return {"Pools": [pool]}


ADDED = frozenset({"AdditionalIamPolicies", "AdditionalSecurityGroups", "CustomSlurmSettings"})
"""Keys of lists to which items are added."""


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """`theirs` over `ours`, key by key and all the way down; neither is changed.

    A list whose items have a `Name` (queues, compute resources, pools, file systems) is merged item by item by that name, and
    new names are added at its end. Policies, security groups and lines of slurm.conf are added to ours, without which the nodes do not
    start (`ADDED`). Any other list or value is replaced. A null removes the key.
    """
    found = dict(ours)
    for key, value in theirs.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _added(found.get(key), value) if key in ADDED else _value(found.get(key), value)
    return found


def _added(ours: Any, theirs: Any) -> Any:
    if not (isinstance(ours, list | tuple) and isinstance(theirs, list | tuple)):
        return _value(ours, theirs)
    return [*ours, *(item for item in theirs if item not in ours)]


def _value(ours: Any, theirs: Any) -> Any:
    if isinstance(theirs, Mapping):
        return merged(ours if isinstance(ours, Mapping) else {}, theirs)
    if isinstance(theirs, list | tuple):
        return _named_items(ours, theirs) if _all_named(theirs) and _all_named(ours) else list(theirs)
    return theirs


def _all_named(items: Any) -> bool:
    return (
        isinstance(items, list | tuple) and bool(items) and all(isinstance(i, Mapping) and "Name" in i for i in items)
    )


def _named_items(ours: Any, theirs: Any) -> list[dict[str, Any]]:
    found = {item["Name"]: dict(item) for item in ours}
    for item in theirs:
        found[item["Name"]] = merged(found.get(item["Name"], {}), item)
    return list(found.values())
