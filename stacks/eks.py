"""`TrnEksStack`: a complete Kubernetes cluster, from the VPC to the jobs' queues."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnOutput, Stack, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.cdk.eks.access import ecr_repositories
from trainium_cdk.cdk.eks.bastion_host import TrnBastionHost
from trainium_cdk.cdk.eks.cluster import TrnEksCluster
from trainium_cdk.cdk.eks.images import TrnImageBuilder
from trainium_cdk.cdk.eks.manifests import claims
from trainium_cdk.cdk.facade import TrnEks
from trainium_cdk.cdk.hardening.encryption import encrypt, encrypt_operations, stack_key
from trainium_cdk.cdk.helpers.functions import interfaces_policy, l1
from trainium_cdk.cdk.helpers.groups import ClosedGroup, https_out
from trainium_cdk.cdk.helpers.paths import path_of
from trainium_cdk.cdk.helpers.removal import removal_policy
from trainium_cdk.cdk.helpers.retention import RETENTION
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, stack_of
from trainium_cdk.cdk.helpers.subnets import routes_of
from trainium_cdk.cdk.observability import TrnObservability
from trainium_cdk.cdk.storage import TrnStorage
from trainium_cdk.description.outputs import eks_outputs, next_step
from trainium_cdk.description.outputs.contract import JOB_FILES
from trainium_cdk.description.settings import ControlPlane, Environment
from trainium_cdk.description.settings.environment import SERVICE_NETWORKS
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.stacks.parts import (
    add_bucket,
    add_job_notices,
    add_network,
    add_registry,
    add_storage,
    alarm_topic,
    default_environment,
)


class TrnEksStack(Stack):
    """An EKS cluster with Trainium node groups, and everything it needs.

    Example:
        stack = TrnEksStack(app, "Training")
        stack.bucket.grant_read(role)
        ec2.SecurityGroup(stack, "Mine", vpc=stack.vpc)

    Args:
        environment: what to build. Default: the defaults of this engine, in the stack's region. Every resource gets its tags, but for node groups, whose
            instances have them.
        kwargs: of a Stack of the CDK. `tags` are for its resources too, and not for the stack itself: CloudFormation would give those to node
            groups.

    Raises:
        SettingsError: without an environment, in a region that does not offer what the defaults need.
    """

    vpc: ec2.IVpc
    """The VPC, for instances, functions and databases of yours."""
    cluster: TrnEksCluster
    """The cluster. Its methods grant access, and its attributes name its parts."""
    storage: TrnStorage
    """The file systems that all nodes mount."""
    bucket: s3.IBucket
    """The bucket for the jobs' files, which other principals can be granted access to."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment | None = None, **kwargs: Any):
        environment = environment or default_environment(scope, "eks", kwargs.get("env"))
        kwargs.setdefault("description", f"Trainium on EKS: cluster {environment.eks_cluster_name} (trainium-cdk)")
        kwargs.setdefault("suppress_template_indentation", True)  # tags stand on each resource, and 1 MB is the limit
        tags = {**environment.tags, **kwargs.pop("tags", {})}
        super().__init__(scope, id, **kwargs)
        for key, value in tags.items():
            Tags.of(self).add(key, value, exclude_resource_types=["aws:cdk:stack"])
        name, on_destroy, eks = environment.name, environment.on_destroy, environment.eks
        zones = inventory(environment, "eks").zone_ids
        data_key = stack_key(
            self, environment.encryption, description=f"Data of {name}", auto_scaling=True, on_destroy=on_destroy
        )
        network = add_network(self, environment, zones)
        storage = add_storage(self, environment, network.vpc, [network.private_subnet(zone) for zone in zones])
        bucket = add_bucket(self, environment, (JOB_FILES,))
        subnets = ec2.SubnetSelection(subnets=network.private_subnets)
        cluster = TrnEksCluster(
            self,
            "Cluster",
            vpc=network.vpc,
            vpc_subnets=subnets,
            control_plane=control_plane(environment),
            secrets_encryption_key=data_key,
            users=users(eks.users),
            chart_repository_arns=ecr_repositories(once(self, "partition"), eks.mirror.charts.values()),
            log_retention=RETENTION[environment.log_days],
            removal_policy=removal_policy(on_destroy),
            rules=False,  # the whole environment is checked
        )
        for access in eks.access:
            # not its position: with one of several gone, EKS refuses a second entry for a principal
            id = f"Access{hashlib.sha256(access.principal.encode()).hexdigest()[:8]}"
            for namespace in access.namespace or (None,):
                cluster.grant_access(id, access.principal, access.policy, team=namespace)
        image, found = environment.node_image, inventory(environment, "eks")
        topic = alarm_topic(self, environment)
        # "Default" is in no logical id
        training = TrnEks(
            self,
            "Default",
            cluster=cluster,
            storage=storage,
            node_groups=eks.node_groups,
            system=eks.system,
            bucket=bucket,
            data_buckets=[
                s3.Bucket.from_bucket_name(self, f"PluginsData{i}", each) for i, each in enumerate(eks.data_buckets)
            ],
            vpc_subnets=subnets,
            group_subnets={group.name: network.private_subnet(found.zone_of(group)) for group in eks.node_groups},
            plugins=eks.plugins,
            scaling=eks.scaling,
            observability=eks.observability,
            log_retention=RETENTION[environment.log_days],
            alarm_topic=topic,
            metrics=environment.observability is not None,
            job_ends=bool(environment.observability and environment.observability.job_topic),
            devices=environment.jobs.health.device,
            queues=eks.queues,
            addon_versions=eks.addon_versions,
            mirror=eks.mirror,
            job_networks=eks.job_networks,
            neuron_driver=environment.node_driver,
            release_version=image.version if image else None,
            outputs=False,  # those of an environment say more
            removal_policy=removal_policy(on_destroy),
            catalog=environment.catalog,
            rules=False,
        )
        training.wait_for(network.internet_ready)
        training.plugins.grant_addresses(*environment.jobs.addresses.values())
        if environment.observability and eks.plugins.autoscaler:  # its function counts jobs and nodes
            TrnObservability(
                self,
                "Observability",
                cluster=cluster,
                node_groups=training.node_groups,
                container_insights=inventory(environment, "eks").node_metrics is not None,
                storage=storage,
                static_nodes=sum(group.idle_nodes for group in eks.node_groups),
                alarm_topic=topic,
                catalog=environment.catalog,
            )
        if training.scaler:
            add_job_notices(self, environment, training.scaler.function.log_group)
        builder = bastion_host = None
        registry = add_registry(self, environment)
        if registry:
            builder = TrnImageBuilder(
                self,
                "Images",
                bucket=bucket,
                repository=registry.repository,
                removal_policy=removal_policy(on_destroy),
            )
        if eks.endpoint == "private" and eks.bastion_host:
            bastion_host = TrnBastionHost(
                self,
                "BastionHost",
                vpc=network.vpc,
                vpc_subnets=ec2.SubnetSelection(subnets=[network.private_subnet()]),
                security_group=cluster.client_group,
                host=eks.bastion_host,
                name=f"{name}-bastion-host",
                rules=False,
            )
        # in the VPC, as the CDK's functions for Kubernetes are: a deletion waits for their network interfaces anyway
        _place_functions(StackPart(self, "Functions"), network.vpc)
        if data_key:
            encrypt(self, data_key, users=[training.plugins.role, *([builder.role] if builder else [])])
        else:
            encrypt_operations(self, cluster.key)
        self.vpc, self.cluster, self.storage, self.bucket = network.vpc, cluster, storage, bucket
        outputs = eks_outputs(
            environment,
            bucket=once(bucket, "bucket_name"),
            claims=claims(storage.file_systems),
            registry_uri=registry.uri if registry else "",
            build_project=builder.project_name if builder else "",
            bastion_host_id=bastion_host.instance_id if bastion_host else "",
            access_role=once(cluster.access_role, "role_arn"),
        )
        left = {
            "Stays": (
                training.plugins.stays,
                "Kubernetes objects that were taken out, but stay for now, and why; - if none",
            )
        }
        for key, (value, description) in {
            **outputs,
            **left,
            **next_step(once(self, "stack_name"), environment.region, "eks", on_destroy),
        }.items():
            CfnOutput(self, key, value=value, description=description)


def control_plane(environment: Environment) -> ControlPlane:
    """The control plane of an environment, with all that it says by default."""
    return ControlPlane(
        version=environment.kubernetes_version,
        support=environment.eks.support,
        cluster_name=environment.eks_cluster_name,
        endpoint=environment.eks.endpoint,
        public_cidrs=environment.eks.public_cidrs,
        namespace=environment.eks.namespace,
        # without a free one: a check rejects that
        service_cidr=environment.service_cidr or SERVICE_NETWORKS[0],
    )


def users(patterns: Sequence[str]) -> iam.IPrincipal:
    """Who may take the role of `trn`: principals of the account, by patterns of their ARNs."""
    account = iam.AccountRootPrincipal()
    return account.with_conditions({"ArnLike": {"aws:PrincipalArn": list(patterns)}}) if patterns else account


def _functions_of(stack: Stack) -> list[functions.Function]:
    """Every function of the CDK's in a stack, without nested stacks'."""
    found = once(stack, "node").find_all()
    own = path_of(stack)
    nested = [path for node in found if isinstance(node, Stack) and (path := path_of(node)) != own]
    return [
        node
        for node in found
        if isinstance(node, functions.Function) and not any(path_of(node).startswith(f"{path}/") for path in nested)
    ]


def _place_functions(scope: Construct, vpc: ec2.IVpc) -> None:
    """Place each function of the stack that is in no VPC yet in the private subnets of `vpc`."""
    outside = [each for each in _functions_of(stack_of(scope)) if not each.is_bound_to_vpc]
    group = ClosedGroup(
        scope,
        "Group",
        vpc_id=once(vpc, "vpc_id"),
        description="Functions of the deployment: HTTPS to AWS",
        egress=https_out("AWS"),
    )
    subnets = once(vpc, "private_subnets")
    inside = functions.CfnFunction.VpcConfigProperty(
        subnet_ids=[once(subnet, "subnet_id") for subnet in subnets],
        security_group_ids=[once(group.group, "security_group_id")],
    )
    interfaces = interfaces_policy(scope)
    for each in outside:
        if role := each.role:
            role.add_managed_policy(interfaces)
            function = l1(each, functions.CfnFunction)
            function.vpc_config = inside
            once(function, "node").add_dependency(*routes_of(subnets))
