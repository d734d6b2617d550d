"""The compute node groups of a cluster of AWS PCS: launch template, instance profile, start scripts and the group itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_pcs as pcs
from constructs import Construct

from trainium_cdk.cdk.bootstrap import TrnBootstrap
from trainium_cdk.cdk.helpers.launch_templates import launch_template, training_template
from trainium_cdk.cdk.helpers.stack_wide import place_of
from trainium_cdk.cdk.storage import FileSystemMount, TrnStorage
from trainium_cdk.description.cluster_configuration import PURCHASE
from trainium_cdk.description.node.env import CPU_ROLE, queue_arguments
from trainium_cdk.description.outputs import pcs_venv
from trainium_cdk.description.settings import CpuQueue, Environment, PcsQueue, PcsResource
from trainium_cdk.description.settings.slurm import group_name

PATH = "/aws-pcs/"
"""Path of roles and instance profiles that PCS accepts (PCS user guide, IAM instance profiles)."""
_Group = pcs.CfnComputeNodeGroup


@dataclass(frozen=True)
class Shared:
    """Values that all node groups of a cluster share."""

    environment: Environment
    cluster: pcs.CfnCluster
    storage: TrnStorage
    bootstrap: TrnBootstrap
    security_groups: Sequence[str]
    image: str
    """The image of nodes that name none."""
    job_role: str
    """ARN of the role of jobs."""
    rules: bool
    """True to check the instances' tags."""

    @property
    def tags(self) -> dict[str, str]:
        """Tags by which the cluster's instances are found."""
        return {"trainium-cdk:cluster": self.environment.pcs_cluster_name}

    @property
    def root_device(self) -> str:
        return self.environment.catalog.pcs.root_devices.get(self.environment.pcs.os, "/dev/sda1")


def node_role(scope: Construct, id: str, storage: TrnStorage, bootstrap: TrnBootstrap) -> iam.Role:
    """A role of nodes: to mount the file systems and to read the start scripts. PCS requires its path."""
    role = iam.Role(scope, id, path=PATH, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    storage.grant_root_access(role)
    bootstrap.grant_read(role)
    return role


def training_group(
    scope: Construct, shared: Shared, queue: PcsQueue, resource: PcsResource, subnet_id: str, profile: str
) -> _Group:
    """The nodes of a compute resource."""
    env = shared.environment
    kind = env.catalog.instance(resource.instance_type)
    efa = kind.efa_of(resource.efa) > 0
    reserved = resource.reservation is not None or queue.capacity_type == "capacity-block"
    template = training_template(
        scope,
        kind=kind,
        layout="efa-only" if efa else None,
        security_group_ids=shared.security_groups,
        root_gib=queue.root_volume_gib,
        root_device=shared.root_device,
        name=f"{env.pcs_cluster_name}-{group_name(queue, resource)}",
        tags=shared.tags,
        rules=shared.rules,
        user_data="",
        image_id=None,
        placement_group=queue.placement(efa=efa, reservation=resource.reservation),
        reservation=resource.reservation,
        capacity_block=queue.capacity_type == "capacity-block",
        subnet_id=subnet_id,
    )
    settings = {
        "Features": ",".join([resource.name, kind.name, *(["efa"] if efa else [])]),
        "Weight": "1" if reserved else "1000",  # what is paid for already is used first
    }
    return _group(
        scope,
        shared,
        name=group_name(queue, resource),
        instance_type=kind.name,
        sizes=(resource.min_nodes, resource.max_nodes),
        template=template,
        subnet_id=subnet_id,
        profile=profile,
        image=queue.custom_ami or shared.image,
        arguments=("TRN_NODE_ROLE=compute", *queue_arguments(env, queue.name, "pcs", resource.name)),
        purchase_option=PURCHASE[queue.capacity_type],
        slurm_configuration=_slurm(settings),
    )


def cpu_group(scope: Construct, shared: Shared, queue: CpuQueue, subnet_id: str, profile: str) -> _Group:
    """The nodes of the CPU queue."""
    return _ordinary_group(
        scope,
        shared,
        name=queue.name,
        instance_type=queue.instance_type,
        root_gib=queue.root_volume_gib,
        sizes=(queue.min_nodes, queue.max_nodes),
        subnet_id=subnet_id,
        profile=profile,
        image=queue.custom_ami or shared.image,
        arguments=(CPU_ROLE,),
        slurm_configuration=_slurm({"Features": f"{queue.name},{queue.instance_type}"}),
    )


def login_group(scope: Construct, shared: Shared, subnet_id: str, profile: str) -> _Group:
    """The login node: a group of one instance that belongs to no queue. It also makes the virtual environment that all nodes share."""
    login = shared.environment.pcs.login
    return _ordinary_group(
        scope,
        shared,
        name="login",
        instance_type=login.instance_type,
        root_gib=login.root_volume_gib,
        sizes=(1, 1),
        subnet_id=subnet_id,
        profile=profile,
        image=shared.image,
        arguments=("TRN_NODE_ROLE=head",),
    )


def _slurm(settings: Mapping[str, str]) -> _Group.SlurmConfigurationProperty:
    return _Group.SlurmConfigurationProperty(
        slurm_custom_settings=[
            _Group.SlurmCustomSettingProperty(parameter_name=key, parameter_value=value)
            for key, value in settings.items()
        ]
    )


def _ordinary_group(
    scope: Construct, shared: Shared, *, name: str, instance_type: str, root_gib: int, **properties: Any
) -> _Group:
    """Nodes without Trainium."""
    template = launch_template(
        scope,
        instance_type=instance_type,
        root_gib=root_gib,
        root_device=shared.root_device,
        name=f"{shared.environment.pcs_cluster_name}-{name}",
        tags=shared.tags,
        rules=shared.rules,
        security_group_ids=list(shared.security_groups),
    )
    return _group(scope, shared, name=name, instance_type=instance_type, template=template, **properties)


def _group(
    scope: Construct,
    shared: Shared,
    *,
    name: str,
    instance_type: str,
    sizes: tuple[int, int],
    template: ec2.CfnLaunchTemplate,
    subnet_id: str,
    profile: str,
    image: str,
    arguments: Sequence[str],
    **properties: object,
) -> _Group:
    bootstrap, facts, p = shared.bootstrap, shared.environment.catalog.pcs, shared.environment.pcs
    script = _Group.NodeLifecycleScriptProperty(
        name="trn",
        script_source=_Group.ScriptSourceProperty(
            script_location=bootstrap.entry_url, checksum=bootstrap.entry_checksum
        ),
        arguments=[
            bootstrap.scripts_url,
            *arguments,
            f"TRN_VENV={pcs_venv(shared.environment)}",
            f"TRN_MOUNT_SOURCES={' '.join(map(_source, shared.storage.file_systems))}",
            f"TRN_SLURM_BIN={facts.slurm_bin.format(version=p.version or facts.default)}",
            f"TRN_JOB_ROLE={shared.job_role}",
            f"TRN_REGION={place_of(scope).region}",
        ],
        on_error="TERMINATE",
        execution_policy="FIRST_BOOT_ONLY",
    )
    group = _Group(
        scope,
        "Resource",
        cluster_id=shared.cluster.attr_id,
        name=name,
        ami_id=image,
        iam_instance_profile_arn=profile,
        subnet_ids=[subnet_id],
        instance_configs=[_Group.InstanceConfigProperty(instance_type=instance_type)],
        scaling_configuration=_Group.ScalingConfigurationProperty(
            min_instance_count=sizes[0], max_instance_count=sizes[1]
        ),
        custom_launch_template=_Group.CustomLaunchTemplateProperty(
            template_id=template.ref, version=template.attr_latest_version_number
        ),
        node_lifecycle_actions=_Group.NodeLifecycleActionsProperty(
            stages=_Group.NodeLifecycleStagesProperty(node_bootstrapped=[script])
        ),
        **properties,  # type: ignore[arg-type]
    )
    group.node.add_dependency(shared.storage.ready, bootstrap)
    return group


def _source(mount: FileSystemMount) -> str:
    if mount.kind == "efs":
        return f"efs:{mount.id}:{mount.mount_dir}"
    return f"fsx:{mount.dns_name}:{mount.mount_name}:{mount.mount_dir}"
